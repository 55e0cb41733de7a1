"""Prototypes on their way from the clients to the server, where they are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.talk import View
from thalweg.core.types import Answers, Floats, Ints, Roster
from thalweg.theory import fill_missing, prototypes
from thalweg.theory.prototypes import Missing

Output = Literal["logits", "probabilities"]
NEW, OLD = "new_prototype", "old_prototype"
CLASSES = "_classes"  # after either name: which rows are there


class Judgement(NamedTuple):
    """Prototypes of the clients that have something to say, missing rows filled in."""

    clients: Ints  # (K,)
    new: Floats  # (K, C, O)
    old: Floats  # (K, C, O)
    has_old: npt.NDArray[np.bool_]  # (K,)


def own_prototypes(view: View, last_began: int, output: Output) -> Mapping[str, Floats]:
    """A client's, by the first model of the bank: of what arrives now and of what it holds of the last step.

    That is what came in round `last_began` or later. Empty if nothing arrives and nothing is held.
    """
    held, since = view.held, view.since
    old = held if since is None else held[since >= last_began]
    if len(view.newest) == 0:
        return {}
    words: dict[str, Floats] = {}
    for name, rows in ((NEW, view.newest), (OLD, old)):
        outputs = view.look(0).outputs(rows).astype(np.float64)
        if output == "probabilities":
            outputs = _softmax(outputs)
        rows_of = prototypes(outputs, view.labels(rows), view.num_classes)
        is_there = np.asarray(~np.isnan(rows_of).any(axis=1))
        values = np.where(np.isnan(rows_of), 0.0, rows_of)
        if output == "probabilities":
            values = values / max(float(np.linalg.norm(values)), 1e-12)
        words[name], words[name + CLASSES] = values.ravel(), is_there.astype(np.float64)
    return words


def from_answers(answers: Answers, roster: Roster, missing: Missing) -> Judgement:
    """What clients have said, as prototypes; who said nothing is left out."""
    asked = np.empty(0, dtype=np.int64) if roster.asked is None else roster.asked
    if NEW not in answers:
        nothing = np.empty((0, 1, 1))
        return Judgement(asked[:0], nothing, nothing, np.empty(0, dtype=bool))
    spoke = np.asarray(~np.isnan(answers[NEW]).any(axis=1))
    new, old = (_rows(answers, name, spoke) for name in (NEW, OLD))
    return Judgement(
        clients=asked[spoke],
        new=fill_missing(new, missing),
        old=fill_missing(old, missing, reference=new),
        has_old=np.asarray(answers[OLD + CLASSES][spoke].any(axis=1)),
    )


def _rows(answers: Answers, name: str, spoke: npt.NDArray[np.bool_]) -> Floats:
    """(K, C, O) with nan in rows that are not there: on the way, nan would be silence."""
    is_there = answers[name + CLASSES][spoke] > 0  # (K, C)
    values = answers[name][spoke].reshape(*is_there.shape, -1)
    return np.where(is_there[:, :, None], values, np.nan)


def _softmax(logits: Floats) -> Floats:
    parts = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    shares: Floats = parts / parts.sum(axis=1, keepdims=True)
    return shares
