from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.types import Floats, Ints
from thalweg.drift.base import Bools, select_rows, update_rows
from thalweg.drift.options import AlarmOptions


class PageHinkleyState(NamedTuple):
    """Of every client, since its last alarm."""

    num: Ints  # (N,) values
    mean: Floats  # (N,) of them
    rise: Floats  # (N,) cumulated excess over the mean so far, less the slack
    lowest: Floats  # (N,) that it has been
    fall: Floats  # (N,) the same downwards, with the slack added
    highest: Floats  # (N,)


@dataclass(frozen=True)
class PageHinkley(AlarmOptions):
    r"""Page and Hinkley: an alarm when a number has been above its own mean for too long.

    .. math::  m_t = \alpha\, m_{t-1} + (x_t - \bar x_t - \delta), \qquad
               m_t - \min_{s \le t} m_s > \lambda

    with the mean of all values since the last alarm. A jump by h is noticed about :math:`\lambda / (h - \delta)`
    values later, a little more since the mean follows.

    Symbols, Page 1954, Hinkley 1971 -> here
        :math:`\delta`   -> slack
        :math:`\lambda`  -> threshold
        :math:`\alpha`   -> memory, of the sum; 1: nothing is forgotten

    Agrees with River's ``PageHinkley`` value for value, if that has the same numbers: its defaults are for
    thousands of values, ours for rounds.

    >>> alarm, state = PageHinkley(slack=0.0, threshold=0.5, min_values=1), PageHinkley().init(1)
    >>> for error in (0.2, 0.2, 0.8, 0.8):  # rises by 0.8 - 0.4, then by 0.8 - 0.5
    ...     state, alarmed = alarm.update(state, np.array([0]), np.array([error]))
    ...     print(bool(alarmed[0]), round(float(state.rise[0]), 6))
    False 0.0
    False 0.0
    False 0.4
    True 0.0
    """

    slack: float = 0.05
    """By how much a value may be above the mean without counting."""
    threshold: float = 0.5
    """How much may add up before there is an alarm."""
    min_values: int = 5
    """No alarm before so many values."""
    memory: float = 1.0
    """Factor of the sum with every value; below one the past fades."""
    direction: Literal["up", "down", "both"] = "up"
    """Does only a rise count, only a fall, or either?"""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self,
            slack="[0, inf)",
            threshold="[0, inf)",
            min_values="[1, inf)",
            memory="(0, 1]",
        )

    def init(self, num_clients: int) -> PageHinkleyState:
        zeros, never = np.zeros(num_clients), np.full(num_clients, np.inf)
        return PageHinkleyState(
            np.zeros(num_clients, dtype=np.int64), zeros, zeros, never, zeros, -never
        )

    def update(
        self, state: PageHinkleyState, clients: Ints, values: Floats
    ) -> tuple[PageHinkleyState, Bools]:
        old = select_rows(state, clients)
        num = old.num + 1
        mean = old.mean + (values - old.mean) / num
        excess = values - mean
        rise = self.memory * old.rise + excess - self.slack
        fall = self.memory * old.fall + excess + self.slack
        lowest, highest = np.minimum(old.lowest, rise), np.maximum(old.highest, fall)
        has_risen, has_fallen = rise - lowest > self.threshold, highest - fall > self.threshold
        changed = {"up": has_risen, "down": has_fallen, "both": has_risen | has_fallen}
        alarmed = changed[self.direction] & (num >= self.min_values)
        now = PageHinkleyState(num, mean, rise, lowest, fall, highest)
        return update_rows(state, clients, now, alarmed, self.init(len(clients))), alarmed
