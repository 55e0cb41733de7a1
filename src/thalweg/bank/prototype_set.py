"""Class prototypes: computed by clients, validated and decoded by the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.capabilities import SurveyContext
from thalweg.core.claims import Claim, check_names, check_vector, first_reason
from thalweg.core.types import Floats, Ints, Roster, SurveyResponses
from thalweg.theory import fill_missing, pooled_variance, prototypes
from thalweg.theory.prototypes import MissingRule

Output = Literal["logits", "probabilities"]
NEW, OLD = "new_prototype", "old_prototype"
CLASSES = "_classes"  # suffix of both names: which classes the client has
ERRORS = "_errors"  # suffix of both names: the standard errors of the prototypes
UNKNOWN = 1e6  # an error that is not known, or larger; below `Limits.max_value`
SINCE = "new_since"
MAX_ROUND = 1e15  # larger integers are not exact in double precision


class PrototypeSet(NamedTuple):
    """Prototypes of the clients that responded, with the rows of missing classes filled in."""

    clients: Ints  # (K,)
    new: Floats  # (K, C, O)
    old: Floats  # (K, C, O)
    has_old: npt.NDArray[np.bool_]  # (K,)
    new_since: Ints  # (K,) the round in which the first of the new samples arrived
    new_errors: Floats  # (K, C) standard errors; nan: not known, or not requested
    old_errors: Floats  # (K, C)


def client_prototypes(
    view: SurveyContext,
    last_began: int | None,
    output: Output,
    *,
    num_models: int = 1,
    with_errors: bool = False,
) -> Mapping[str, Floats]:
    """Return a client's prototypes of its new and of its old samples.

    They are means of the outputs of the bank's first `num_models` models, one after the other.

    New samples arrive in this round, old samples arrived in round `last_began` or later. With
    None, a step may start after the samples have changed: if nothing arrives in this round, the
    samples of the last arrival are new and all others old. Without new samples the result is empty.
    `with_errors` adds the standard errors of the prototypes.
    """
    new, old, since = split_new_old(view, last_began)
    if len(new) == 0:
        return {}
    response: dict[str, Floats] = {SINCE: np.array([float(since)])}
    groups, norms = {}, dict.fromkeys((NEW, OLD), 1.0)
    for name, rows in ((NEW, new), (OLD, old)):
        parts = [
            view.probe_model(model).outputs(rows).astype(np.float64) for model in range(num_models)
        ]
        if output == "probabilities":
            parts = [_softmax(part) for part in parts]
        outputs = np.concatenate(parts, axis=1)
        labels = view.labels(rows)
        means = prototypes(outputs, labels, view.num_classes)
        groups[name] = (outputs, labels, means)
        has_class = np.asarray(~np.isnan(means).any(axis=1))
        values = np.where(np.isnan(means), 0.0, means)
        if output == "probabilities":
            norms[name] = max(float(np.linalg.norm(values)), 1e-12)
            values = values / norms[name]
        response[name], response[name + CLASSES] = values.ravel(), has_class.astype(np.float64)
    if with_errors:
        variance = pooled_variance(list(groups.values()))
        for name, (_, labels, _) in groups.items():
            sizes = np.bincount(labels, minlength=view.num_classes)
            errors = np.sqrt(variance / np.maximum(sizes, 1)) / norms[name]
            is_known = (sizes > 0) & (errors < UNKNOWN)
            response[name + ERRORS] = np.where(is_known, errors, UNKNOWN)
    return response


def split_new_old(view: SurveyContext, last_began: int | None) -> tuple[Ints, Ints, int]:
    """Return the new and the old rows, and the round in which the new ones arrived.

    `last_began` is explained in `client_prototypes`.
    """
    held, since = view.held, view.since
    if since is None or len(held) == 0:
        return view.newest, held, view.rnd
    if last_began is not None:
        return view.newest, held[since >= last_began], view.rnd
    if not np.array_equal(view.newest, held):
        return view.newest, held, view.rnd
    last = int(since.max())
    return held[since == last], held[since < last], last


def validate_prototypes(claim: Claim, *others: str) -> str | None:
    """Expect two prototypes of equal size, their classes, and the round of the new samples.

    `others` are further names of the response.
    """
    uploads, classes = claim.uploads, claim.num_classes
    if reason := first_reason(
        check_names(uploads, NEW, NEW + CLASSES, OLD, OLD + CLASSES, SINCE, *others),
        check_vector(uploads, SINCE, 1, least=0, most=MAX_ROUND),
        check_vector(uploads, NEW + CLASSES, classes, 0, 1),
    ):
        return reason
    num_classes, size = uploads[NEW + CLASSES].shape[-1], uploads.get(NEW, np.empty(0)).shape[-1]
    if num_classes == 0 or size == 0 or size % num_classes:
        return f"{NEW} has {size} numbers, expected a multiple of the {num_classes} classes."
    return first_reason(
        check_vector(uploads, NEW),
        check_vector(uploads, OLD, size),
        check_vector(uploads, OLD + CLASSES, num_classes, 0, 1),
    )


def read_prototypes(
    responses: SurveyResponses, roster: Roster, missing: MissingRule
) -> PrototypeSet:
    """Decode the responses of the surveyed clients; clients without a response are left out."""
    surveyed = np.empty(0, dtype=np.int64) if roster.surveyed is None else roster.surveyed
    if not _are_compatible(responses):
        empty = np.empty((0, 1, 1))
        no_rows = np.empty((0, 1))
        return PrototypeSet(
            surveyed[:0], empty, empty, np.empty(0, dtype=bool), surveyed[:0], no_rows, no_rows
        )
    has_responded = np.asarray(~np.isnan(responses[NEW]).any(axis=1))
    new, old = (_decode(responses, name, has_responded) for name in (NEW, OLD))
    return PrototypeSet(
        clients=surveyed[has_responded],
        new=fill_missing(new, missing),
        old=fill_missing(old, missing, reference=new),
        has_old=np.asarray(responses[OLD + CLASSES][has_responded].any(axis=1)),
        new_since=responses[SINCE][has_responded, 0].astype(np.int64),
        new_errors=_decode_errors(responses, NEW, has_responded),
        old_errors=_decode_errors(responses, OLD, has_responded),
    )


def _are_compatible(responses: SurveyResponses) -> bool:
    """Return whether there are responses and their sizes match."""
    if not all(name in responses for name in (NEW, OLD, NEW + CLASSES, OLD + CLASSES, SINCE)):
        return False
    num_classes, size = responses[NEW + CLASSES].shape[1], responses[NEW].shape[1]
    sizes = responses[OLD + CLASSES].shape[1], responses[OLD].shape[1]
    return sizes == (num_classes, size) and num_classes > 0 and size % num_classes == 0


def _decode(responses: SurveyResponses, name: str, has_responded: npt.NDArray[np.bool_]) -> Floats:
    """Return (K, C, O) with rows of nan for missing classes.

    In a response these rows are zeros, because nan there means that the client did not respond.
    """
    has_class = responses[name + CLASSES][has_responded] > 0  # (K, C)
    values = responses[name][has_responded].reshape(*has_class.shape, -1)
    return np.where(has_class[:, :, None], values, np.nan)


def _decode_errors(
    responses: SurveyResponses, name: str, has_responded: npt.NDArray[np.bool_]
) -> Floats:
    """Return (K, C) standard errors; nan: not known."""
    num_classes = responses[name + CLASSES].shape[1]
    errors = responses.get(name + ERRORS)
    if errors is None or errors.shape[1] != num_classes:
        return np.full((int(has_responded.sum()), num_classes), np.nan)
    found = errors[has_responded].astype(np.float64)
    return np.where(found < UNKNOWN, found, np.nan)


def _softmax(logits: Floats) -> Floats:
    parts = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    shares: Floats = parts / parts.sum(axis=1, keepdims=True)
    return shares
