"""A stream of Gaussian classes that move: drift in two dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import require
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.data.base import Dataset


@dataclass(frozen=True)
class GaussianMixture:
    r"""Samples of Gaussian classes whose means move on a circle over time.

    .. math::
        x \mid y = c, t \sim N(\mu_c(t), \mathrm{noise}^2 I), \quad
        \mu_c(t) = \mathrm{radius} \cdot (\cos \varphi, \sin \varphi, 0, \ldots), \quad
        \varphi = 2 \pi (c / C + \mathrm{turns} \cdot t)

    Time runs from 0 to 1 over the stream. With ``turns = 1 / C`` every class ends where the next
    one began, so the first and the last concept contradict each other; with 0 there is no drift;
    with 1 every class returns.

    >>> GaussianMixture(num_classes=4, radius=3.0, turns=0.25).means(1.0)[0].round(6).tolist()
    [0.0, 3.0]
    >>> data = GaussianMixture().load(None, seed=7)
    >>> data.x.shape, float(data.time[5000])
    ((10000, 2), 0.5)
    """

    num_samples: int = 10_000
    num_classes: int = 4
    num_features: int = 2
    """At least 2; features after the second are noise."""
    radius: float = 2.0
    noise: float = 0.5
    """Standard deviation of a class."""
    turns: float = 0.125
    """Number of rotations of the means until the end of the stream; negative: backwards."""
    num_clients: int | None = None
    """Number of clients to which samples are assigned at random; None: the data have no clients."""
    num_test: int = 2000
    test_at: Literal["throughout", "end"] = "throughout"
    """Test samples come from all times, or from the time after the last training sample."""

    def __post_init__(self) -> None:
        check_literals(self)
        for name, least in (("num_samples", 1), ("num_classes", 2), ("num_features", 2)):
            value = getattr(self, name)
            require(value >= least, f"{name} must be at least {least}, got {value}.")
        check_ranges(
            self,
            num_samples="[1, inf)",
            num_classes="[2, UNITS]",
            num_features="[2, UNITS]",
            num_test="[1, inf)",
        )
        for name in ("radius", "noise"):
            value = getattr(self, name)
            require(0 < value < np.inf, f"{name} must be positive and finite, got {value}.")
        require(bool(np.isfinite(self.turns)), f"turns must be finite, got {self.turns}.")
        require(
            self.num_clients is None or 1 <= self.num_clients <= self.num_samples,
            f"num_clients must be none or lie in 1 .. num_samples={self.num_samples}, "
            f"got {self.num_clients}.",
        )

    def means(self, time: float) -> Floats:
        """(C, F) means of the classes at a time."""
        return self._means_of(np.arange(self.num_classes), np.full(self.num_classes, time))

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Generate the stream in order of arrival.

        Other seeds give other samples of the same classes.
        """
        rng = rng_for(seed, Draw.DATA)
        time = np.arange(self.num_samples) / self.num_samples  # (n,)
        x, y = self._samples(time, rng)
        test_time = rng.random(self.num_test) if self.test_at == "throughout" else 1.0
        x_test, y_test = self._samples(np.broadcast_to(test_time, self.num_test), rng)
        return Dataset(
            name="gaussian-mixture",
            x=x,
            y=y,
            x_test=x_test,
            y_test=y_test,
            num_classes=self.num_classes,
            client=None
            if self.num_clients is None
            else self._assign_clients(self.num_clients, rng),
            time=time,
        )

    def _samples(self, time: Floats, rng: np.random.Generator) -> tuple[Floats32, Ints]:
        y = rng.integers(0, self.num_classes, len(time))  # (n,)
        x = self._means_of(y, time) + rng.normal(0.0, self.noise, (len(time), self.num_features))
        return x.astype(np.float32), y

    def _means_of(self, classes: Ints, time: Floats) -> Floats:
        angle = 2 * np.pi * (classes / self.num_classes + self.turns * time)  # (n,)
        means = np.zeros((len(classes), self.num_features))
        means[:, 0], means[:, 1] = self.radius * np.cos(angle), self.radius * np.sin(angle)
        return means

    def _assign_clients(self, num_clients: int, rng: np.random.Generator) -> Ints:
        """Client of every training sample; shares are equal up to one sample."""
        return rng.permutation(np.arange(self.num_samples) % num_clients)
