from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import require
from thalweg.core.types import Floats, Ints
from thalweg.drift.actions import AlarmOptions
from thalweg.drift.base import Bools, select_rows, update_rows


class DdmState(NamedTuple):
    """Error statistics of each client since its last alarm."""

    num: Ints  # (N,) number of values
    rate: Floats  # (N,) mean error
    best_rate: Floats  # (N,) rate at the lowest sum of rate and spread; inf: none yet
    best_spread: Floats  # (N,) spread at the same time


@dataclass(frozen=True)
class Ddm(AlarmOptions):
    r"""DDM: raises an alarm when the mean error is significantly above its lowest value.

    .. math::  p_t + s_t > p_{min} + k\, s_{min}, \qquad s_t = \sqrt{p_t (1 - p_t) / t}

    It suits errors that fall as long as the data do not change. If a model has never been wrong,
    its spread is zero and its first error raises an alarm.

    Symbols, Gama et al. 2004 -> here
        :math:`p_t, s_t`            -> mean of the errors since the last alarm, and its spread
        :math:`p_{min}, s_{min}`    -> DdmState.best_rate, DdmState.best_spread: their values when
                                       p + s was lowest
        k                           -> level

    Differs from the paper: a value is the error rate of a round, not one correct or wrong
    prediction. So t counts rounds, the spread is too large, and alarms are later rather than false.

    After four errors of 0.2 the limit is 0.2 + 3 * 0.2 = 0.8. With an error of 1 the mean is
    (0.8 + 1) / 5 = 0.36 and the spread 0.2147, which is below; five more errors of 1 exceed it:

    >>> alarm, client = Ddm(min_values=4), np.array([0])
    >>> state = alarm.init(num_clients=1)
    >>> for rnd, error in enumerate([0.2] * 4 + [1.0] * 6):
    ...     state, alarmed = alarm.update(state, client, np.array([error]))
    ...     if alarmed[0]:
    ...         print("alarm after value", rnd)
    alarm after value 8
    """

    needs_class_labels: ClassVar[bool] = True  # models a share of wrong predictions

    level: float = 3.0
    """Number of spreads above the lowest error."""
    min_values: int = 10
    """Number of values before the first possible alarm.

    The lowest error is tracked from then on.
    """

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, level="(0, inf)", min_values="[1, inf)")
        require(
            self.watch == "error",
            f"alarm=ddm needs error rates, got alarm.watch={self.watch}; use alarm.watch=error, or "
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
