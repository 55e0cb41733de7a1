"""What a client does to its update before anybody else sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats32
from thalweg.theory import gaussian_epsilon, row_norms


class Privacy(Protocol):
    """Hides in an update what the client's samples are. Any object of this shape will do."""

    def add_noise(self, deltas: Floats32, rng: np.random.Generator) -> Floats32:
        """(J, P) what is sent in the place of a client's updates of J models."""
        ...

    def compute_epsilon(self, releases: int) -> float:
        """The epsilon of a client that has sent so many replies."""
        ...


@dataclass(frozen=True)
class Gaussian:
    r"""Shorten every update to a bound and add Gaussian noise, at the client: nobody else sees it without.

    .. math::  \tilde\Delta = \Delta \min(1, C / \lVert \Delta \rVert) + N(0, \sigma^2 C^2 I)

    Of several models of one client, the updates are shortened as one vector. What the samples of a client may
    change in it is at most 2 C, whatever they are, so that T replies together are
    :math:`(\varepsilon, \delta)`-differentially private with the epsilon of `theory.gaussian_epsilon` for
    :math:`\mu = 2 \sqrt T / \sigma`: exact, for one client against a server (and everybody behind it) that is not
    trusted, and however it chooses whom to ask. The guarantee is for updates alone; numbers beside them (samples
    held, losses, right predictions, reports, answers) go out as they are.

    Symbols -> here: C -> clip, :math:`\sigma` -> noise, :math:`\delta` -> delta.
    """

    clip: float = 1.0
    """Largest length of an update."""
    noise: float = 1.0
    """Standard deviation of what is added to each number, in units of clip."""
    delta: float = 1e-5
    """Of the guarantee; well below one over the number of people concerned."""

    def __post_init__(self) -> None:
        check_ranges(self, clip="(0, inf)", noise="(0, inf)", delta="(0, 1)")

    def add_noise(self, deltas: Floats32, rng: np.random.Generator) -> Floats32:
        length = float(row_norms(deltas.reshape(1, -1))[0])
        factor = min(1.0, self.clip / length) if length > 0 else 1.0
        hidden = np.empty_like(deltas)
        for row, delta in zip(hidden, deltas, strict=True):
            row[:] = delta * factor + self.noise * self.clip * rng.standard_normal(len(delta))
        return hidden

    def compute_epsilon(self, releases: int) -> float:
        return gaussian_epsilon(self.delta, self.noise, releases, distance=2.0)


PRIVACIES: dict[str, type[Privacy]] = {"gaussian": Gaussian}
