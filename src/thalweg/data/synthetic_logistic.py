"""Clients with similar but different logistic concepts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.errors import require
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.data.base import Dataset


@dataclass(frozen=True)
class SyntheticLogistic:
    r"""Every client labels uniform points with its own logistic model, close to a common one.

    .. math::
        \theta_0 \sim N(0, I), \quad \theta_m \sim N(\theta_0, \varepsilon^2 I), \quad
        x \sim U([-1, 1]^d), \quad y \sim \mathrm{Bernoulli}(\sigma(\langle x, \theta_m \rangle))

    Symbols, Marfoq et al. (2023) -> here
        M   clients                        -> num_clients
        d   features (the model adds 1)    -> num_features
        ε   distance between clients       -> spread
        N   samples of all clients         -> num_samples

    With `noise` the label is 1 if :math:`\langle x, \theta_m \rangle` plus a normal number of this
    standard deviation is positive: the labels of the code that the authors released for an earlier
    paper (omarfoq/FedEM, data/synthetic, with 0.1), which are much less random.

    Differences from the paper: it does not give ε; 0.1 and the number of test samples are our
    choices. Clients have equal shares of both parts; the first ones have one more sample if
    necessary.

    >>> data = SyntheticLogistic().load(None, seed=7)
    >>> data.x.shape, np.bincount(data.client).tolist()
    ((200, 20), [19, 19, 18, 18, 18, 18, 18, 18, 18, 18, 18])
    """

    num_clients: int = 11
    num_samples: int = 200
    """Training samples of all clients."""
    num_features: int = 20
    spread: float = 0.1
    """Standard deviation of a client's concept around the common one; 0: all are equal."""
    num_test: int = 2200
    """Test samples of all clients."""
    noise: float | None = None
    """Standard deviation of the noise in labels; none: Bernoulli labels."""

    def __post_init__(self) -> None:
        check_ranges(self, num_clients="[1, CLIENTS]", num_features="[1, UNITS]")
        for name in ("num_samples", "num_test"):
            value = getattr(self, name)
            require(
                value >= self.num_clients,
                f"{name} must be at least num_clients={self.num_clients}, got {value}.",
            )
        check_ranges(self, num_samples="[1, inf)", num_test="[1, inf)", noise="[0, inf) or none")
        require(
            0 <= self.spread < np.inf, f"spread must be finite and not negative, got {self.spread}."
        )

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Generate the data; other seeds give other concepts and samples."""
        rng = rng_for(seed, Draw.DATA)
        common = rng.normal(size=self.num_features)  # (F,)
        concepts = rng.normal(common, self.spread, (self.num_clients, self.num_features))  # (N, F)
        group = np.sort(np.arange(self.num_samples) % self.num_clients)
        client_test = np.sort(np.arange(self.num_test) % self.num_clients)
        x, y = self._draw_samples(concepts[group], rng)
        x_test, y_test = self._draw_samples(concepts[client_test], rng)
        return Dataset(
            "synthetic-logistic",
            x,
            y,
            x_test,
            y_test,
            num_classes=2,
            client=group,
            client_test=client_test,
        )

    def _draw_samples(self, concept: Floats, rng: np.random.Generator) -> tuple[Floats32, Ints]:
        """One point and its label for each row of concepts, (n, F)."""
        x = rng.uniform(-1.0, 1.0, concept.shape).astype(np.float32)  # (n, F)
        score = np.einsum("nf,nf->n", x, concept)
        if self.noise is None:
            is_one = rng.random(len(x)) < 1 / (1 + np.exp(-score))
        else:
            is_one = score + self.noise * rng.normal(size=len(x)) > 0
        return x, is_one.astype(np.int64)
