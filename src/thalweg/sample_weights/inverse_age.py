from __future__ import annotations

from dataclasses import dataclass

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats, SampleAges


@dataclass(frozen=True)
class InverseAge:
    r"""Give samples less weight the longer they have been in memory.

    .. math::  \lambda_j = \tau_j^{-\kappa}

    With :math:`\kappa = 1` and aggregation by total weight, a client that has held 100 samples for
    ten rounds counts as much as one that has just received ten.

    Symbols, Marfoq et al. (2023) -> here
        :math:`\lambda_j`  sample weight       -> the result
        :math:`\tau_j`     rounds in memory    -> SampleAges.ages
        :math:`\kappa`                         -> power

    Differs from the paper: there :math:`\tau_j` is the whole time in memory, known beforehand;
    here it is the time so far. In T rounds a stored sample counts 1 + 1/2 + ... + 1/T, 5.2 for 100
    rounds, and one that stays for a single round counts 1: stored data have a much larger share of
    the run than under the paper's Uniform strategy, which is ``OldAndNew("uniform")``.

    >>> import numpy as np
    >>> samples = SampleAges(ages=np.array([1, 2, 4]), labels=np.array([0, 0, 1]))
    >>> InverseAge().weigh(samples).tolist()
    [1.0, 0.5, 0.25]
    """

    power: float = 1.0
    """0: all samples count the same."""

    def __post_init__(self) -> None:
        check_ranges(self, power="[0, inf)")

    def weigh(self, samples: SampleAges) -> Floats:
        weights: Floats = samples.ages.astype(float) ** -self.power
        return weights
