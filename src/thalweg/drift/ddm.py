from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import require
from thalweg.core.types import Floats, Ints
from thalweg.drift.base import Bools, select_rows, update_rows
from thalweg.drift.options import AlarmOptions


class DdmState(NamedTuple):
    """Of every client, since its last alarm: how often it was wrong, and how seldom that has been."""

    num: Ints  # (N,) values
    rate: Floats  # (N,) mean error so far
    best_rate: Floats  # (N,) when rate and spread together were lowest; inf: never yet
    best_spread: Floats  # (N,)


@dataclass(frozen=True)
class Ddm(AlarmOptions):
    r"""DDM: an alarm when the mean error is significantly above the lowest it has been.

    .. math::  p_t + s_t > p_{min} + k\, s_{min}, \qquad s_t = \sqrt{p_t (1 - p_t) / t}

    with the mean :math:`p_t` of all errors since the last alarm; the minimum is that of :math:`p + s`. Good where
    errors only fall while nothing changes. A model that was never wrong has no spread, and its first error is an
    alarm.

    Symbols, Gama et al. 2004 -> here
        k                           -> level
        :math:`p_{min}, s_{min}`    -> Best.best_rate, Best.best_spread

    Differs from the paper: a value is the error of a round, a share of its samples, not one right or wrong answer.
    So t counts rounds and the spread is too large, on the safe side.
    """

    level: float = 3.0
    """Spreads above the lowest error."""
    min_values: int = 10
    """Values that are only counted, the last of them excepted; the lowest error is looked for from then on."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, level="(0, inf)", min_values="[1, inf)")
        require(
            self.watch == "error",
            "alarm=ddm goes by shares of wrong answers and cannot watch a loss; use alarm.watch=error, or "
            "another alarm, such as page-hinkley.",
        )

    def init(self, num_clients: int) -> DdmState:
        never = np.full(num_clients, np.inf)
        return DdmState(np.zeros(num_clients, dtype=np.int64), np.zeros(num_clients), never, never)

    def update(self, state: DdmState, clients: Ints, values: Floats) -> tuple[DdmState, Bools]:
        old = select_rows(state, clients)
        num = old.num + 1
        rate = old.rate + (values - old.rate) / num
        spread = np.sqrt(np.maximum(rate * (1 - rate), 0) / num)
        is_watched = num >= self.min_values
        is_best = is_watched & (rate + spread <= old.best_rate + old.best_spread)
        best_rate = np.where(is_best, rate, old.best_rate)
        best_spread = np.where(is_best, spread, old.best_spread)
        alarmed = is_watched & (rate + spread > best_rate + self.level * best_spread)
        now = DdmState(num, rate, best_rate, best_spread)
        return update_rows(state, clients, now, alarmed, self.init(len(clients))), alarmed
