from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.types import Floats, Ints
from thalweg.drift.actions import AlarmOptions
from thalweg.drift.base import Bools, update_rows


class WindowTestState(NamedTuple):
    """The last values of each client since its last alarm, the newest at the end."""

    num: Ints  # (N,) number of values, at most reference + recent
    values: Floats  # (N, reference + recent)


@dataclass(frozen=True)
class WindowTest(AlarmOptions):
    r"""Window test: raises an alarm when recent values are significantly larger than earlier ones.

    ``ks`` is the one-sided Kolmogorov-Smirnov test:

    .. math::  \max_x (F_n(x) - G_m(x)) >
               \sqrt{-\tfrac12 \ln(\text{significance})\, \frac{n + m}{n m}}

    ``mean`` is Welch's one-sided test of the means. Each test is repeated at every value. Over a
    long run the rate of false alarms is therefore larger than `significance`; `rise` excludes
    significant but small changes.

    Symbols: n, m -> reference, recent; :math:`F_n, G_m` are the distribution functions of the
    values in the earlier and in the recent window.

    Values before both windows are forgotten. Unlike the Page-Hinkley test, this test is not
    affected by the large errors at the beginning of training.

    Two earlier and two recent values: the largest distance is 1, the limit with significance 0.5 is
    sqrt(ln(2) / 2 * 4 / 4) = 0.589:

    >>> alarm, client = WindowTest(reference=2, recent=2, significance=0.5), np.array([0])
    >>> state = alarm.init(num_clients=1)
    >>> for error in (0.1, 0.1, 0.6, 0.6):
    ...     state, alarmed = alarm.update(state, client, np.array([error]))
    ...     print(bool(alarmed[0]), end=" ")
    False False False True
    """

    test: Literal["ks", "mean"] = "ks"
    reference: int = 10
    """Number of values in the earlier window."""
    recent: int = 5
    """Number of values in the recent window."""
    significance: float = 0.01
    """Level of significance of each test."""
    rise: float = 0.05
    """Minimum rise of the mean; smaller changes raise no alarm."""

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
        window = np.concatenate([state.values[clients, 1:], values[:, None]], axis=1)
        before, new = window[:, : self.reference], window[:, self.reference :]
        has_risen = new.mean(axis=1) - before.mean(axis=1) > self.rise
        is_significant = (is_larger if self.test == "ks" else has_larger_mean)(
            before, new, self.significance
        )
        alarmed = (num == self._length) & has_risen & is_significant
        now = WindowTestState(num, window)
        return update_rows(state, clients, now, alarmed, self.init(len(clients))), alarmed


def is_larger(before: Floats, new: Floats, significance: float) -> Bools:
    """Return (K,) whether `new` (K, m) is larger than `before` (K, n), by Kolmogorov-Smirnov.

    >>> before = np.arange(10.0)[None] / 10
    >>> is_larger(before, before[:, :5] + 1, 0.01).tolist()
    [True]
    >>> is_larger(before, before[:, 5:], 0.01).tolist()
    [False]
    """
    n, m = before.shape[1], new.shape[1]
    points = np.concatenate([before, new], axis=1)[:, :, None]  # where the functions have steps
    shares = [(window[:, None, :] <= points).mean(axis=2) for window in (before, new)]
    distance = (shares[0] - shares[1]).max(axis=1)
    return np.asarray(distance > math.sqrt(-math.log(significance) / 2 * (n + m) / (n * m)))


def has_larger_mean(before: Floats, new: Floats, significance: float) -> Bools:
    """Return (K,) whether the mean of `new` (K, m) exceeds that of `before` (K, n), by Welch.

    The p-value of this example is 0.0107 (t = 3.674 with 4 degrees of freedom):

    >>> before, new = np.array([[1.0, 2.0, 3.0]]), np.array([[4.0, 5.0, 6.0]])
    >>> has_larger_mean(before, new, 0.02).tolist(), has_larger_mean(before, new, 0.01).tolist()
    ([True], [False])
    """
    from scipy.special import stdtr  # slow to import

    n, m = before.shape[1], new.shape[1]
    difference = new.mean(axis=1) - before.mean(axis=1)
    one, two = before.var(axis=1, ddof=1) / n, new.var(axis=1, ddof=1) / m
    is_certain = one + two <= 1e-24  # constant values: any difference counts
    variance = np.where(is_certain, 1.0, one + two)
    freedom = np.where(
        is_certain, 1.0, variance**2 / np.maximum(one**2 / (n - 1) + two**2 / (m - 1), 1e-300)
    )
    tail = stdtr(freedom, -difference / np.sqrt(variance))
    return np.asarray(np.where(is_certain, difference > 0, tail < significance))
