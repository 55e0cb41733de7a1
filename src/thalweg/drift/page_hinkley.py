from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.types import Floats, Ints
from thalweg.drift.actions import AlarmOptions
from thalweg.drift.base import Bools, select_rows, update_rows


class PageHinkleyState(NamedTuple):
    """Statistics of each client since its last alarm."""

    num: Ints  # (N,) number of values
    mean: Floats  # (N,) mean of the values
    rise: Floats  # (N,) cumulative excess over the mean, minus the slack
    lowest: Floats  # (N,) lowest value of `rise`
    fall: Floats  # (N,) cumulative excess over the mean, plus the slack
    highest: Floats  # (N,) highest value of `fall`


@dataclass(frozen=True)
class PageHinkley(AlarmOptions):
    r"""Page-Hinkley test: raises an alarm when values stay above their mean for too long.

    .. math::  m_t = \alpha\, m_{t-1} + (x_t - \bar x_t - \delta), \qquad
               m_t - \min_{s \le t} m_s > \lambda

    A jump by h is detected after about :math:`\lambda / (h - \delta)` values, or a little later,
    because the mean follows the values.

    Symbols, Page 1954, Hinkley 1971 -> here
        :math:`x_t, \bar x_t`  -> value t, and the mean of the values since the last alarm
        :math:`\delta`         -> slack
        :math:`\lambda`        -> threshold
        :math:`\alpha`         -> memory; 1 forgets nothing

    Gives the same alarms as River's ``PageHinkley`` with the same parameters. River's defaults suit
    thousands of values, these suit rounds.

    >>> alarm, state = PageHinkley(slack=0.0, threshold=0.5, min_values=1), PageHinkley().init(1)
    >>> for error in (0.2, 0.2, 0.8, 0.8):  # the sum rises by 0.8 - 0.4, then by 0.8 - 0.5
    ...     state, alarmed = alarm.update(state, np.array([0]), np.array([error]))
    ...     print(bool(alarmed[0]), round(float(state.rise[0]), 6))
    False 0.0
    False 0.0
    False 0.4
    True 0.0
    """

    slack: float = 0.05
    """Excess over the mean that is ignored."""
    threshold: float = 0.5
    """Cumulative excess that raises an alarm."""
    min_values: int = 5
    """Number of values before the first possible alarm."""
    memory: float = 1.0
    """Factor of the cumulative sum at each value; below 1 old values are forgotten."""
    direction: Literal["up", "down", "both"] = "up"
    """Whether a rise, a fall, or both raise an alarm."""

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
