from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.types import Floats, Floats32, ParamSlice
from thalweg.core.vectors import freeze
from thalweg.sessions.base import ProbeRound, check_same_net


class AverageState(NamedTuple):
    """The models of past sessions, added up."""

    sessions: int  # that have begun
    initial_model: (
        Floats32  # (P,) the model as it was drawn; of no elements if nobody needs it any more
    )
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
        check_literals(self)
        check_ranges(self, pilot_sessions="[0, inf)")

    def init(self, model: Floats32, pieces: Sequence[ParamSlice]) -> AverageState:
        initial_model = model if self.first_start == "random" else model[:0]
        return AverageState(0, freeze(initial_model), freeze(np.zeros(len(model))))

    def choose_start(
        self, notes: AverageState, last: Floats32, run_probe_round: ProbeRound
    ) -> tuple[AverageState, Floats32]:
        check_same_net(last, notes.total)
        session, pilots = notes.sessions, self.pilot_sessions
        notes = notes._replace(sessions=session + 1)
        if session < pilots:
            return notes, last
        if session == pilots:
            start = notes.initial_model.copy() if self.first_start == "random" else last
            return notes._replace(initial_model=freeze(last[:0])), start
        total = notes.total + last
        return notes._replace(total=freeze(total)), (total / (session - pilots)).astype(np.float32)
