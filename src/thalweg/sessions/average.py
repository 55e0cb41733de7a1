from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.types import Floats, Floats32, ParamSlice
from thalweg.core.vectors import freeze
from thalweg.sessions.base import ProbeRound, check_same_net


class AverageState(NamedTuple):
    """The sum of the final models of past sessions."""

    sessions: int  # number of sessions so far
    initial_model: Floats32  # (P,) the initial model of the run; empty when no longer needed
    total: Floats  # (P,) sum of the final models, without pilot sessions


@dataclass(frozen=True)
class Average:
    r"""Starts a session with the mean of the final models of all past sessions.

    .. math::  x_s = \frac{1}{s - P} \sum_{z=P}^{s-1} w_z^{last}

    The first P sessions are excluded and start with the last model. This makes the policy
    comparable with `WarmStart`, which uses them for its pilot model.

    Symbols, Chang et al. -> here
        s                      -> number of the session that starts, counted from 0
        :math:`w_z^{last}`     -> model after the last round of session z
        P                      -> pilot_sessions

    Without pilot sessions, and with past sessions that ended with 8 and 2, a session starts with 5:

    >>> rule, zero = Average(pilot_sessions=0), np.zeros(1, dtype=np.float32)
    >>> state = rule.init(zero, [])
    >>> for last in (0, 8, 2):
    ...     state, start = rule.choose_start(state, np.array([last], dtype=np.float32), None)
    ...     print(start.tolist())
    [0.0]
    [8.0]
    [5.0]
    """

    max_probe_rounds: ClassVar[int] = 0

    pilot_sessions: int = 1
    """Number of sessions at the beginning that are excluded from the mean."""
    first_start: Literal["latest", "random"] = "latest"
    """Start of the first session after the pilots: the last model, or the run's initial one."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, pilot_sessions="[0, inf)")

    def init(self, model: Floats32, pieces: Sequence[ParamSlice]) -> AverageState:
        initial_model = model if self.first_start == "random" else model[:0]
        return AverageState(0, freeze(initial_model), freeze(np.zeros(len(model))))

    def choose_start(
        self, state: AverageState, last: Floats32, run_probe_round: ProbeRound
    ) -> tuple[AverageState, Floats32]:
        check_same_net(last, state.total)
        session, pilots = state.sessions, self.pilot_sessions
        state = state._replace(sessions=session + 1)
        if session < pilots:
            return state, last
        if session == pilots:
            start = state.initial_model.copy() if self.first_start == "random" else last
            return state._replace(initial_model=freeze(last[:0])), start
        total = state.total + last
        return state._replace(total=freeze(total)), (total / (session - pilots)).astype(np.float32)
