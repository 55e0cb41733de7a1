"""Update privacy: noise that a client adds to its update before sending it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.noise import NoiseGenerator
from thalweg.core.types import Floats32
from thalweg.theory import gaussian_epsilon, row_norms


class Privacy(Protocol):
    """Protects the samples behind an update. Implement both methods; no base class is needed."""

    def add_noise(self, deltas: Floats32, rng: NoiseGenerator) -> Floats32:
        """Return (J, P) what a client sends in place of its updates of J models."""
        ...

    def compute_epsilon(self, releases: int) -> float:
        """Return the epsilon of a client after `releases` updates."""
        ...


@dataclass(frozen=True)
class Gaussian:
    r"""Local differential privacy: clip every update and add Gaussian noise, at the client.

    .. math::  \tilde\Delta = \Delta \min(1, C / \lVert \Delta \rVert) + N(0, \sigma^2 C^2 I)

    The updates of several models are clipped as one vector. The samples of a client change the
    clipped update by at most 2 C, so that T updates together are
    :math:`(\varepsilon, \delta)`-differentially private with the epsilon of
    `theory.gaussian_epsilon` for :math:`\mu = 2 \sqrt T / \sigma`. The guarantee is exact, for all
    samples of one client, against an untrusted server that may choose clients in any way. It
    covers updates only: other values that a client sends (number of samples, losses, correct
    predictions, reports, survey responses) are not protected.

    Symbols -> here
        C                        -> clip
        :math:`\sigma, \delta`   -> noise, delta

    With almost no noise, an update of length 5 is clipped to length 1:

    >>> privacy = Gaussian(clip=1.0, noise=1e-9)
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

    def __post_init__(self) -> None:
        check_ranges(self, clip="(0, inf)", noise="(0, inf)", delta="(0, 1)")

    def add_noise(self, deltas: Floats32, rng: NoiseGenerator) -> Floats32:
        length = float(row_norms(deltas.reshape(1, -1))[0])
        factor = min(1.0, self.clip / length) if length > 0 else 1.0
        noisy = np.empty_like(deltas)
        for row, delta in zip(noisy, deltas, strict=True):
            row[:] = delta * factor + self.noise * self.clip * rng.standard_normal(len(delta))
        return noisy

    def compute_epsilon(self, releases: int) -> float:
        return gaussian_epsilon(self.delta, self.noise, releases, distance=2.0)


PRIVACIES: dict[str, type[Privacy]] = {"gaussian": Gaussian}
