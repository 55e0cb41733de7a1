"""Update privacy: what a client does to its response before sending it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import require
from thalweg.core.noise import NoiseGenerator
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.theory import PrivacyCost, gaussian_epsilon, row_norms

Disclosure = Literal["exact", "noisy", "omit"]


class RoundNumbers(NamedTuple):
    """The numbers that a client sends beside its updates of J models."""

    num_samples: int
    num_steps: Ints  # (J,)
    losses: Floats  # (J,) nan without a step
    num_tested: Ints  # (J,)
    num_correct: Ints  # (J,)
    error_sums: Floats | None  # (J,) of a regression


class Privacy(Protocol):
    """Protects the samples behind an update. Implement both methods; no base class is needed."""

    def add_noise(self, deltas: Floats32, rng: NoiseGenerator) -> Floats32:
        """Return (J, P) what a client sends in place of its updates of J models."""
        ...

    def compute_epsilon(self, releases: int) -> float:
        """Return the epsilon of a client after `releases` updates."""
        ...


@runtime_checkable
class HidesNumbers(Protocol):
    """A privacy policy that can also hide the numbers beside the update."""

    @property
    def delta(self) -> float: ...

    @property
    def exact_parts(self) -> tuple[str, ...]:
        """What clients still send without noise; empty if all of a response is protected."""
        ...

    @property
    def update_cost(self) -> PrivacyCost:
        """What the update of one response discloses."""
        ...

    @property
    def cost(self) -> PrivacyCost:
        """What one response discloses, apart from the exact parts."""
        ...

    def hide_numbers(
        self, numbers: RoundNumbers, capacity: int, rng: NoiseGenerator
    ) -> RoundNumbers:
        """Return what a client with room for `capacity` samples sends in place of its numbers."""
        ...


@dataclass(frozen=True)
class Gaussian:
    r"""Local differential privacy: clip every update and add Gaussian noise, at the client.

    .. math::  \tilde\Delta = \Delta \min(1, C / \lVert \Delta \rVert) + N(0, \sigma^2 C^2 I)

    The updates of several models are clipped as one vector. The samples of a client change the
    clipped update by at most 2 C, so that T updates together are
    :math:`(\varepsilon, \delta)`-differentially private with the epsilon of
    `theory.gaussian_epsilon` for :math:`\mu = 2 \sqrt T / \sigma`. The guarantee is exact, for all
    samples of one client, against an untrusted server that may choose clients in any way.

    By default it covers updates only. The options `losses`, `counts` and `predictions` omit the
    numbers beside the update or add noise to them. Values that lie in an interval are noisy in the
    same way as the update: with half of the interval's length in place of C. Each such option
    therefore costs as much as the update. Reports to the weights and survey responses are not
    covered. An update that is not finite is sent as zeros with noise.

    Symbols -> here
        C                        -> clip
        :math:`\sigma, \delta`   -> noise, delta

    With almost no noise, an update of length 5 is clipped to length 1:

    >>> privacy = Gaussian(clip=1.0, noise=1e-6)
    >>> sent = privacy.add_noise(np.array([[3.0, 4.0]], dtype=np.float32), np.random.default_rng(0))
    >>> [round(float(value), 4) for value in sent[0]]
    [0.6, 0.8]
    """

    clip: float = 1.0
    """Largest norm of an update."""
    noise: float = 1.0
    """Standard deviation of the noise on each number, in units of clip."""
    delta: float = 1e-5
    """Delta of the guarantee; should be well below one over the number of persons concerned."""
    losses: Disclosure = "exact"
    """The training losses."""
    counts: Disclosure = "exact"
    """The number of samples; unless it is exact, the number of steps is sent as 1."""
    predictions: Disclosure = "exact"
    """The numbers of tested samples and of correct predictions, or the sum of absolute errors."""
    max_loss: float = 10.0
    """Larger losses and mean absolute errors are clipped before noise is added."""
    max_count: int = 1000
    """Larger numbers of samples are clipped before noise is added."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self,
            clip="[1e-30, inf)",
            noise="[1e-6, inf)",
            delta="(0, 1)",
            max_loss="[1e-30, inf)",
            max_count="[1, inf)",
        )
        require(
            self.counts == "exact" or self.losses != "exact",
            f"counts={self.counts} needs losses=noisy or losses=omit: an exact loss discloses "
            "whether a client has samples. Set privacy.losses.",
        )

    @property
    def exact_parts(self) -> tuple[str, ...]:
        parts = {"losses": self.losses, "counts": self.counts, "predictions": self.predictions}
        return tuple(name for name, how in parts.items() if how == "exact")

    @property
    def update_cost(self) -> PrivacyCost:
        return PrivacyCost((2 / self.noise) ** 2)

    @property
    def cost(self) -> PrivacyCost:
        noisy = [self.losses, self.counts, self.predictions].count("noisy")
        return self.update_cost.times(1 + noisy)

    def hide_numbers(
        self, numbers: RoundNumbers, capacity: int, rng: NoiseGenerator
    ) -> RoundNumbers:
        if self.losses == "noisy":
            losses = np.nan_to_num(numbers.losses, nan=self.max_loss) / self.max_loss
            numbers = numbers._replace(losses=self.max_loss * self._hide_shares(losses, rng))
        elif self.losses == "omit":
            numbers = numbers._replace(losses=np.zeros(len(numbers.losses)))
        if self.counts != "exact":
            ones, count = np.ones(len(numbers.num_steps), dtype=np.int64), 1
            if self.counts == "noisy":
                shares = np.array([numbers.num_samples / self.max_count])
                noisy = round(self.max_count * float(self._hide_shares(shares, rng)[0]))
                count = min(max(noisy, 1), self.max_count, max(capacity, 1))
            numbers = numbers._replace(num_samples=count, num_steps=ones)
        if self.predictions != "exact":
            numbers = self._hide_predictions(numbers, rng)
        return numbers

    def _hide_predictions(self, numbers: RoundNumbers, rng: NoiseGenerator) -> RoundNumbers:
        """Hide the sums over all models, as those of the first model."""
        sums, limit = numbers.error_sums, float(self.max_count)
        tested = correct = np.zeros(len(numbers.num_tested), dtype=np.int64)
        errors = None if sums is None else np.zeros(len(sums))
        if self.predictions == "noisy":
            second = (
                numbers.num_correct.sum() / limit
                if sums is None
                else sums.sum() / (limit * self.max_loss)
            )
            shares = np.array([numbers.num_tested.sum() / limit, second])
            first, other = np.clip(self._hide_shares(shares, rng), 0, 1).tolist()
            tested, correct = tested.copy(), correct.copy()
            tested[0] = round(limit * first)
            if errors is None:
                correct[0] = min(round(limit * other), int(tested[0]))
            else:
                errors[0] = min(limit * other, float(tested[0])) * self.max_loss
        return numbers._replace(num_tested=tested, num_correct=correct, error_sums=errors)

    def _hide_shares(self, shares: Floats, rng: NoiseGenerator) -> Floats:
        """Return numbers of the interval [0, 1] with noise.

        The vector lies in a ball of half the diagonal of the cube, in place of `clip`.
        """
        radius = math.sqrt(len(shares)) / 2
        noise = self.noise * radius * rng.standard_normal(len(shares))
        noisy: Floats = np.clip(shares, 0.0, 1.0) + noise
        return noisy

    def add_noise(self, deltas: Floats32, rng: NoiseGenerator) -> Floats32:
        if not np.isfinite(deltas).all():  # noise could not hide that training diverged
            deltas = np.zeros_like(deltas)
        length = float(row_norms(deltas.reshape(1, -1))[0])
        factor = min(1.0, self.clip / length) if length > 0 else 1.0
        noisy = np.empty_like(deltas)
        for row, delta in zip(noisy, deltas, strict=True):
            row[:] = delta * factor + self.noise * self.clip * rng.standard_normal(len(delta))
        return noisy

    def compute_epsilon(self, releases: int) -> float:
        return gaussian_epsilon(self.delta, self.noise, releases, distance=2.0)


PRIVACIES: dict[str, type[Privacy]] = {"gaussian": Gaussian}
