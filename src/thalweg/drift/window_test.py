from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.types import Floats, Ints
from thalweg.drift.base import Bools, update_rows
from thalweg.drift.options import AlarmOptions


class WindowTestState(NamedTuple):
    """The last values of every client since its last alarm, the newest at the end."""

    num: Ints  # (N,) how many there have been, at most as many as are kept
    values: Floats  # (N, reference + recent)


@dataclass(frozen=True)
class WindowTest(AlarmOptions):
    r"""Two windows: an alarm when the newest values are significantly larger than those before them.

    ``ks``: Kolmogorov and Smirnov, one-sided. With n values before, m new ones and their distribution functions,

    .. math::  \max_x (F_n(x) - G_m(x)) > \sqrt{-\tfrac12 \ln(\text{significance})\, \frac{n + m}{n m}}

    ``mean``: Welch's test of the means, one-sided. Both are asked anew with every value, so that over a long run
    there are more false alarms than `significance` says; `rise` keeps out what is significant and small.

    What came before both windows is forgotten: other than Page and Hinkley's, this test is not misled by the errors
    of a model that had only begun to learn.
    """

    test: Literal["ks", "mean"] = "ks"
    reference: int = 10
    """Values of the window before."""
    recent: int = 5
    """Values of the newest one."""
    significance: float = 0.01
    rise: float = 0.05
    """The mean must have risen by more than this."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self,
            reference="[2, inf)",
            recent="[2, inf)",
            significance="(0, 1)",
            rise="[0, inf)",
        )

    @property
    def _length(self) -> int:
        return self.reference + self.recent

    def init(self, num_clients: int) -> WindowTestState:
        return WindowTestState(
            np.zeros(num_clients, dtype=np.int64), np.zeros((num_clients, self._length))
        )

    def update(
        self, state: WindowTestState, clients: Ints, values: Floats
    ) -> tuple[WindowTestState, Bools]:
        num = np.minimum(state.num[clients] + 1, self._length)
        shown = np.concatenate([state.values[clients, 1:], values[:, None]], axis=1)
        before, new = shown[:, : self.reference], shown[:, self.reference :]
        has_risen = new.mean(axis=1) - before.mean(axis=1) > self.rise
        is_other = (is_larger if self.test == "ks" else has_larger_mean)(
            before, new, self.significance
        )
        alarmed = (num == self._length) & has_risen & is_other
        now = WindowTestState(num, shown)
        return update_rows(state, clients, now, alarmed, self.init(len(clients))), alarmed


def is_larger(before: Floats, new: Floats, significance: float) -> Bools:
    """(K,) are the values (K, m) larger than those (K, n) before, by the test of Kolmogorov and Smirnov?

    >>> before = np.arange(10.0)[None] / 10
    >>> is_larger(before, before[:, :5] + 1, 0.01).tolist(), is_larger(before, before[:, 5:], 0.01).tolist()
    ([True], [False])
    """
    n, m = before.shape[1], new.shape[1]
    places = np.concatenate([before, new], axis=1)[:, :, None]  # where the functions may step
    shares = [(window[:, None, :] <= places).mean(axis=2) for window in (before, new)]
    distance = (shares[0] - shares[1]).max(axis=1)
    return np.asarray(distance > math.sqrt(-math.log(significance) / 2 * (n + m) / (n * m)))


def has_larger_mean(before: Floats, new: Floats, significance: float) -> Bools:
    """(K,) is the mean of values (K, m) larger than that of those (K, n) before, by Welch's test?

    >>> before, new = np.array([[1.0, 2.0, 3.0]]), np.array([[4.0, 5.0, 6.0]])  # t = 3.674 with 4 degrees: 0.0107
    >>> has_larger_mean(before, new, 0.02).tolist(), has_larger_mean(before, new, 0.01).tolist()
    ([True], [False])
    """
    from scipy.special import stdtr  # heavy, and seldom needed

    n, m = before.shape[1], new.shape[1]
    difference = new.mean(axis=1) - before.mean(axis=1)
    one, two = before.var(axis=1, ddof=1) / n, new.var(axis=1, ddof=1) / m
    is_certain = one + two <= 1e-24  # two constants: any difference counts
    variance = np.where(is_certain, 1.0, one + two)
    freedom = np.where(
        is_certain, 1.0, variance**2 / np.maximum(one**2 / (n - 1) + two**2 / (m - 1), 1e-300)
    )
    tail = stdtr(freedom, -difference / np.sqrt(variance))
    return np.asarray(np.where(is_certain, difference > 0, tail < significance))
