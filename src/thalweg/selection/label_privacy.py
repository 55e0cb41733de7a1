"""What a client lets the server know of its labels, and what that has cost it so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.types import Floats


class PrivacyAccount(NamedTuple):
    """A client's account of what it has disclosed."""

    last_mix: Floats  # (C,) the label mix it last said; zeros before the first time
    reports: int = 0  # times it said something
    num_arrived: int = 0  # labels that came since noise was last spent
    chain_epsilon: float = (
        0.0  # epsilon of the last look and of those that may share a sample with it
    )
    spent: float = 0.0  # epsilon spent on any one sample, at most


@dataclass(frozen=True)
class LabelPrivacy:
    r"""Privacy of the label histograms that clients send up. Everything is off by default.

    With `epsilon`, counts get Laplace noise of scale :math:`2/\varepsilon`, so that what is said would be
    almost as likely (up to a factor :math:`e^\varepsilon`) had one sample been *replaced* by another; with
    ``neighbours="add_remove"``, :math:`1/\varepsilon`, had one been added or removed. The first is the
    default because in a full memory or window a sample that was not there leaves its place to another. Then
    counts are clipped at zero and normalised; nothing left is said as uniform.

    With noise, *everything* is decided on the noisy counts: whether there are at least `min_count` samples
    and whether the mix has moved by more than `min_change`. Silence then tells as much as a report and
    costs as much: every question spends `epsilon`, answered or not (`PrivacyAccount.spent`, summed up by
    sequential composition). So with noise `min_change` saves traffic, not budget. Without noise both
    are decided on the true counts, and silence tells that there are few samples, or that they are alike.

    A counter that surely forgets (`WindowCounter`) spends anew: a look at none of the samples of the looks before
    shares no sample with them, and each sample pays only for the looks it was part of.

    Not covered: anything else a client sends (updates, losses, number of samples), what a memory policy
    makes of one sample beyond its own place, and attacks on the floating-point noise of a simulation.

    Symbols, here
        :math:`\varepsilon`  per look -> epsilon        :math:`\|\Delta r\|_1` threshold  -> min_change
    """

    epsilon: float | None = None
    neighbours: Literal["replace", "add_remove"] = "replace"
    min_change: float | None = None
    """Say nothing unless the label mix has moved by more than this in L1, 0 to 2; none: always say."""
    min_count: int = 0
    """A client with fewer samples says nothing."""

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
        """Of the noise on every count; its variance is twice the square."""
        if self.epsilon is None:
            return 0.0
        return (2.0 if self.neighbours == "replace" else 1.0) / self.epsilon

    def init(self, num_classes: int) -> PrivacyAccount:
        """The account of a client that has said nothing yet."""
        return PrivacyAccount(last_mix=np.zeros(num_classes))

    def count_arrivals(self, account: PrivacyAccount, count: int) -> PrivacyAccount:
        """More labels have arrived; see `LabelCounter.span`."""
        return account._replace(num_arrived=account.num_arrived + count)

    def release(
        self, account: PrivacyAccount, counts: Floats, span: int | None, rng: np.random.Generator
    ) -> tuple[PrivacyAccount, Floats | None]:
        """The account afterwards, and the counts (C,) that may be said; none: say nothing.

        `counts` are the true ones, of which nothing is left after `span` more labels.
        """
        if self.epsilon is not None:
            counts = counts + rng.laplace(0.0, self.scale, len(counts))
            account = self._charge(account, self.epsilon, span)
        # Before clipping, which would only add; off, it must not catch a negative sum of noise.
        is_few = self.min_count > 0 and counts.sum() < self.min_count
        if self.epsilon is not None:
            counts = clip_counts(counts)
        mix = frequencies(counts)
        moved = np.abs(mix - account.last_mix).sum()
        is_known = self.min_change is not None and account.reports > 0 and moved <= self.min_change
        if is_few or is_known:
            return account, None
        return account._replace(last_mix=mix, reports=account.reports + 1), counts

    def _charge(self, account: PrivacyAccount, epsilon: float, span: int | None) -> PrivacyAccount:
        is_fresh = span is not None and account.num_arrived >= span
        chain_epsilon = epsilon if is_fresh else account.chain_epsilon + epsilon
        return account._replace(
            num_arrived=0, chain_epsilon=chain_epsilon, spent=max(account.spent, chain_epsilon)
        )


def clip_counts(noisy: Floats) -> Floats:
    """No negative counts; nothing left becomes one sample, spread over all classes.

    >>> frequencies(clip_counts(np.array([10 + 1.2, 0 - 0.8, 5 + 0.3]))).round(6).tolist()
    [0.678788, 0.0, 0.321212]
    >>> clip_counts(np.array([-1.0, -0.5])).tolist()
    [0.5, 0.5]
    """
    counts = np.maximum(noisy, 0.0)
    return counts if counts.any() else np.full(len(counts), 1 / len(counts))


def frequencies(counts: Floats) -> Floats:
    """(..., C) counts divided by their sum; no counts stay zeros.

    >>> frequencies(np.array([[1.0, 3.0], [0.0, 0.0]])).tolist()
    [[0.25, 0.75], [0.0, 0.0]]
    """
    total = counts.sum(-1, keepdims=True)
    mix: Floats = np.divide(counts, total, out=np.zeros(counts.shape), where=total > 0)
    return mix
