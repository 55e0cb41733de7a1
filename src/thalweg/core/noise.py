"""Privacy noise: from the operating system on devices, from the seed in simulations.

The server knows the seed of a run. Noise that depends on it could be subtracted, so a device never
draws privacy noise from a seeded generator.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from thalweg.core.types import Floats

BITS = 52  # of a uniform number: a double has 53, and a midpoint needs one more


class NoiseGenerator(Protocol):
    """The distributions from which privacy noise is drawn; a part of `np.random.Generator`."""

    def random(self, size: int) -> Floats:
        """(size,) uniform numbers between 0 and 1."""
        ...

    def standard_normal(self, size: int) -> Floats:
        """(size,) normal numbers of mean 0 and variance 1."""
        ...

    def laplace(self, loc: float, scale: float, size: int) -> Floats:
        """(size,) Laplace numbers of mean `loc` and mean absolute deviation `scale`."""
        ...


class SystemGenerator:
    """Draws every number from the operating system's generator; it has no state and no seed.

    Uniform numbers are the midpoints of 2^52 equal intervals, so that they are never 0 or 1. The
    other distributions are their quantiles at such numbers. Numbers are floating-point, which
    leaves attacks on their lowest bits possible (Mironov, "On significance of the least
    significant bits for differential privacy", 2012).
    """

    def random(self, size: int) -> Floats:
        words = np.frombuffer(os.urandom(8 * size), dtype=np.uint64)
        return ((words >> np.uint64(64 - BITS)).astype(np.float64) + 0.5) * 2.0**-BITS

    def standard_normal(self, size: int) -> Floats:
        from scipy.special import ndtri

        return np.asarray(ndtri(self.random(size)), dtype=np.float64)

    def laplace(self, loc: float, scale: float, size: int) -> Floats:
        centred = self.random(size) - 0.5
        quantiles: Floats = loc - scale * np.sign(centred) * np.log1p(-2 * np.abs(centred))
        return quantiles


class NoiseSource(Protocol):
    """Chooses the generator of a client's privacy noise."""

    @property
    def is_simulated(self) -> bool:
        """Whether the noise depends on the seed of the run, which the server knows."""
        ...

    def choose_generator(self, seeded: np.random.Generator) -> NoiseGenerator:
        """Return the generator to use, given the one that the seed determines."""
        ...


@dataclass(frozen=True)
class SimulatedNoise:
    """Noise from the seed: the same in every repetition of a simulation. It protects no data."""

    is_simulated: bool = True

    def choose_generator(self, seeded: np.random.Generator) -> NoiseGenerator:
        return seeded


@dataclass(frozen=True)
class SystemNoise:
    """Noise from the operating system, which neither the server nor the device can repeat."""

    is_simulated: bool = False

    def choose_generator(self, seeded: np.random.Generator) -> NoiseGenerator:
        return SystemGenerator()
