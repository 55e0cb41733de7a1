"""Prototypes on their way from the clients to the server, where they are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.capabilities import SurveyContext
from thalweg.core.claims import Claim, check_vector, first_reason
from thalweg.core.types import Floats, Ints, Roster, SurveyResponses
from thalweg.theory import fill_missing, prototypes
from thalweg.theory.prototypes import MissingRule

Output = Literal["logits", "probabilities"]
NEW, OLD = "new_prototype", "old_prototype"
CLASSES = "_classes"  # after either name: which rows are there
SINCE = "new_since"
MAX_ROUND = 1e15  # of rounds; beyond that a whole number is none any more


class PrototypeSet(NamedTuple):
    """Prototypes of the clients that have something to say, missing rows filled in."""

    clients: Ints  # (K,)
    new: Floats  # (K, C, O)
    old: Floats  # (K, C, O)
    has_old: npt.NDArray[np.bool_]  # (K,)
    new_since: Ints  # (K,) the round in which the first of the new samples came


def client_prototypes(
    view: SurveyContext, last_began: int | None, output: Output
) -> Mapping[str, Floats]:
    """A client's, by the first model of the bank: of new samples, and of older ones. Empty if there are none.

    New is what arrives now, old what came in round `last_began` or later. Without such a round a step may begin
    when the new samples have been there for a while: if nothing arrives now, new is what came last, old all else.
    """
    new, old, since = _split_new_old(view, last_began)
    if len(new) == 0:
        return {}
    words: dict[str, Floats] = {SINCE: np.array([float(since)])}
    for name, rows in ((NEW, new), (OLD, old)):
        outputs = view.probe_model(0).outputs(rows).astype(np.float64)
        if output == "probabilities":
            outputs = _softmax(outputs)
        rows_of = prototypes(outputs, view.labels(rows), view.num_classes)
        is_there = np.asarray(~np.isnan(rows_of).any(axis=1))
        values = np.where(np.isnan(rows_of), 0.0, rows_of)
        if output == "probabilities":
            values = values / max(float(np.linalg.norm(values)), 1e-12)
        words[name], words[name + CLASSES] = values.ravel(), is_there.astype(np.float64)
    return words


def _split_new_old(view: SurveyContext, last_began: int | None) -> tuple[Ints, Ints, int]:
    """New and old rows, and the round in which the new ones came."""
    held, since = view.held, view.since
    if since is None or len(held) == 0:
        return view.newest, held, view.rnd
    if last_began is not None:
        return view.newest, held[since >= last_began], view.rnd
    if not np.array_equal(view.newest, held):
        return view.newest, held, view.rnd
    last = int(since.max())
    return held[since == last], held[since < last], last


def validate_prototypes(claim: Claim) -> str | None:
    """Two prototypes of one size, for each which classes it has, and since when the new samples are there."""
    uploads, classes = claim.uploads, claim.num_classes
    if reason := first_reason(
        check_vector(uploads, SINCE, 1, least=0, most=MAX_ROUND),
        check_vector(uploads, NEW + CLASSES, classes, 0, 1),
    ):
        return reason
    num_classes, size = uploads[NEW + CLASSES].shape[-1], uploads.get(NEW, np.empty(0)).shape[-1]
    if num_classes == 0 or size == 0 or size % num_classes:
        return f"{NEW} has {size} numbers, which are not as many for each of {num_classes} classes."
    return first_reason(
        check_vector(uploads, NEW),
        check_vector(uploads, OLD, size),
        check_vector(uploads, OLD + CLASSES, num_classes, 0, 1),
    )


def read_prototypes(answers: SurveyResponses, roster: Roster, missing: MissingRule) -> PrototypeSet:
    """What clients have said, as prototypes; who said nothing is left out."""
    surveyed = np.empty(0, dtype=np.int64) if roster.surveyed is None else roster.surveyed
    if not _are_compatible(answers):
        nothing = np.empty((0, 1, 1))
        return PrototypeSet(surveyed[:0], nothing, nothing, np.empty(0, dtype=bool), surveyed[:0])
    spoke = np.asarray(~np.isnan(answers[NEW]).any(axis=1))
    new, old = (_rows(answers, name, spoke) for name in (NEW, OLD))
    return PrototypeSet(
        clients=surveyed[spoke],
        new=fill_missing(new, missing),
        old=fill_missing(old, missing, reference=new),
        has_old=np.asarray(answers[OLD + CLASSES][spoke].any(axis=1)),
        new_since=answers[SINCE][spoke, 0].astype(np.int64),
    )


def _are_compatible(answers: SurveyResponses) -> bool:
    """Has anybody said anything, and can it be read?"""
    if not all(name in answers for name in (NEW, OLD, NEW + CLASSES, OLD + CLASSES, SINCE)):
        return False
    num_classes, size = answers[NEW + CLASSES].shape[1], answers[NEW].shape[1]
    sizes = answers[OLD + CLASSES].shape[1], answers[OLD].shape[1]
    return sizes == (num_classes, size) and num_classes > 0 and size % num_classes == 0


def _rows(answers: SurveyResponses, name: str, spoke: npt.NDArray[np.bool_]) -> Floats:
    """(K, C, O) with nan in rows that are not there: on the way, nan would be silence."""
    is_there = answers[name + CLASSES][spoke] > 0  # (K, C)
    values = answers[name][spoke].reshape(*is_there.shape, -1)
    return np.where(is_there[:, :, None], values, np.nan)


def _softmax(logits: Floats) -> Floats:
    parts = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    shares: Floats = parts / parts.sum(axis=1, keepdims=True)
    return shares
