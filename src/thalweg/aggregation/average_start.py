from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from thalweg.aggregation.opening import Rehearse, check_same_net
from thalweg.core.config import check_ranges, check_words
from thalweg.core.types import Floats, Floats32, Piece
from thalweg.core.vectors import frozen


class Sum(NamedTuple):
    """The models of past sessions, added up."""

    sessions: int  # that have begun
    drawn: Floats32  # (P,) the model as it was drawn; of no elements if nobody needs it any more
    total: Floats  # (P,) of all sessions but the pilots that are over


@dataclass(frozen=True)
class Average:
    r"""Begin with the mean of the models with which past sessions ended, whoever they were trained by.

    .. math::  x = \frac{1}{s - P} \sum_{z=P}^{s-1} w_z^{last}

    The first sessions are left out, so that it can be compared with `WarmStart`, which needs them for its pilot;
    they go on from the last model.

    Symbols, clients that come and go -> here
        s, :math:`w_z^{last}`  the session that begins, and the model after the last round of another one
        P                      -> pilot_sessions
    """

    pilot_sessions: int = 1
    """Sessions at the beginning that are not counted."""
    first_start: Literal["latest", "random"] = "latest"
    """The first session after those: from the last model, or from the one that was drawn."""

    def __post_init__(self) -> None:
        check_words(self)
        check_ranges(self, pilot_sessions="[0, inf)")

    def init(self, model: Floats32, pieces: Sequence[Piece]) -> Sum:
        drawn = model if self.first_start == "random" else model[:0]
        return Sum(0, frozen(drawn), frozen(np.zeros(len(model))))

    def open(self, notes: Sum, last: Floats32, rehearse: Rehearse) -> tuple[Sum, Floats32]:
        check_same_net(last, notes.total)
        session, pilots = notes.sessions, self.pilot_sessions
        notes = notes._replace(sessions=session + 1)
        if session < pilots:
            return notes, last
        if session == pilots:
            start = notes.drawn.copy() if self.first_start == "random" else last
            return notes._replace(drawn=frozen(last[:0])), start
        total = notes.total + last
        return notes._replace(total=frozen(total)), (total / (session - pilots)).astype(np.float32)
