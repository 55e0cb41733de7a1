"""Privacy of label counts: Laplace noise, suppression of reports, and the privacy account."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.noise import NoiseGenerator
from thalweg.core.types import Floats


class PrivacyAccount(NamedTuple):
    """What a client has disclosed about its labels so far."""

    last_mix: Floats  # (C,) with `min_change`: the last reported label mix; zeros before it
    reports: int = 0  # with `min_change`: number of reports
    num_arrived: int = 0  # with noise: labels since the last survey
    chain_epsilon: float = 0.0  # epsilon of the surveys that may share a sample with the last one
    spent: float = 0.0  # largest epsilon spent on any one sample


@dataclass(frozen=True)
class LabelPrivacy:
    r"""Protects the label histograms that clients send to the server. Off by default.

    With `epsilon`, every count gets Laplace noise of scale

    .. math::
        b = 2/\varepsilon \ \text{(replace)}, \qquad b = 1/\varepsilon \ \text{(add or remove)}

    so that the probability of any report changes by at most a factor :math:`e^\varepsilon` if one
    sample is *replaced* by another (``neighbours="replace"``, the default: in a full memory,
    another sample takes the place of a missing one) or is added or removed (``"add_remove"``).
    Noisy counts are clipped at zero and normalised; if all are clipped, the report is the uniform
    distribution.

    With noise, *all* decisions use the noisy counts: whether there are at least `min_count`
    samples, and whether the mix has changed by more than `min_change`. No report then discloses as
    much as a report and costs as much: every survey spends `epsilon`. Costs add up
    (`PrivacyAccount.spent`, sequential composition), so that `min_change` saves traffic, not
    budget. Without noise the decisions use the true counts, and a missing report discloses that
    there are few samples or that the mix is unchanged.

    With a counter that forgets after a known number of labels (`WindowCounter`), surveys without a
    common sample do not add up: each sample pays only for the surveys that included it.

    Not protected: everything else that a client sends (updates, losses, number of samples),
    effects of a sample on the memory policy beyond its own slot, and attacks on floating-point
    noise.

    Symbols -> here
        :math:`\varepsilon` per survey             -> epsilon
        b                                          -> scale
        :math:`\|\Delta r\|_1` smallest change    -> min_change

    >>> privacy = LabelPrivacy(epsilon=0.5)
    >>> privacy.scale  # 2 / 0.5
    4.0
    >>> account, rng = privacy.init(num_classes=2), np.random.default_rng(0)
    >>> for survey in range(3):
    ...     account, counts = privacy.release(account, np.array([10.0, 5.0]), None, rng)
    >>> account.spent  # three times 0.5
    1.5
    """

    epsilon: float | None = None
    """Privacy parameter per survey; none: no noise."""
    neighbours: Literal["replace", "add_remove"] = "replace"
    min_change: float | None = None
    """Report only if the mix has changed by more than this in L1 (0 to 2); none: always report."""
    min_count: int = 0
    """A client with fewer samples sends no report."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self,
            epsilon="(0, inf) or none",
            min_change="[0, 2) or none",  # an L1 distance
            min_count="[0, inf)",
        )

    @property
    def scale(self) -> float:
        """The scale of the noise on every count; the variance is twice its square."""
        if self.epsilon is None:
            return 0.0
        return (2.0 if self.neighbours == "replace" else 1.0) / self.epsilon

    def init(self, num_classes: int) -> PrivacyAccount:
        """Return the account of a client that has reported nothing yet."""
        return PrivacyAccount(last_mix=np.zeros(num_classes))

    def count_arrivals(self, account: PrivacyAccount, count: int) -> PrivacyAccount:
        """Return the account after `count` more labels; see `LabelCounter.span`."""
        if self.epsilon is None:
            return account
        return account._replace(num_arrived=account.num_arrived + count)

    def release(
        self, account: PrivacyAccount, counts: Floats, span: int | None, rng: NoiseGenerator | None
    ) -> tuple[PrivacyAccount, Floats | None]:
        """Return the account afterwards and the counts (C,) to report; None: no report.

        `counts` are the true counts. `span` is that of the counter (`LabelCounter.span`). `rng` is
        needed with `epsilon` only.
        """
        if self.epsilon is not None:
            assert rng is not None
            counts = counts + rng.laplace(0.0, self.scale, len(counts))
            account = self._charge(account, self.epsilon, span)
        # Before clipping, which could only raise the sum. If min_count is 0 the test is off, also
        # for a negative noisy sum.
        is_few = self.min_count > 0 and counts.sum() < self.min_count
        if self.epsilon is not None:
            counts = clip_counts(counts)
        if is_few:
            return account, None
        if self.min_change is None:
            return account, counts
        mix = frequencies(counts)
        if account.reports > 0 and np.abs(mix - account.last_mix).sum() <= self.min_change:
            return account, None
        return account._replace(last_mix=mix, reports=account.reports + 1), counts

    def _charge(self, account: PrivacyAccount, epsilon: float, span: int | None) -> PrivacyAccount:
        """Add `epsilon` to the account.

        Surveys form a chain while consecutive ones may share a sample; a sample pays for at most
        one chain.
        """
        is_fresh = span is not None and account.num_arrived >= span
        chain_epsilon = epsilon if is_fresh else account.chain_epsilon + epsilon
        return account._replace(
            num_arrived=0, chain_epsilon=chain_epsilon, spent=max(account.spent, chain_epsilon)
        )


def clip_counts(noisy: Floats) -> Floats:
    """Replace negative counts by zero; if nothing is left, spread one sample over all classes.

    >>> frequencies(clip_counts(np.array([10 + 1.2, 0 - 0.8, 5 + 0.3]))).round(6).tolist()
    [0.678788, 0.0, 0.321212]
    >>> clip_counts(np.array([-1.0, -0.5])).tolist()
    [0.5, 0.5]
    """
    counts = np.maximum(noisy, 0.0)
    return counts if counts.any() else np.full(len(counts), 1 / len(counts))


def frequencies(counts: Floats) -> Floats:
    """Divide counts (..., C) by their sum; rows of zeros stay zeros.

    >>> frequencies(np.array([[1.0, 3.0], [0.0, 0.0]])).tolist()
    [[0.25, 0.75], [0.0, 0.0]]
    """
    total = counts.sum(-1, keepdims=True)
    mix: Floats = np.divide(counts, total, out=np.zeros(counts.shape), where=total > 0)
    return mix
