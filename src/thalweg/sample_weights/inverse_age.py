from __future__ import annotations

from dataclasses import dataclass

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats, SampleAges


@dataclass(frozen=True)
class InverseAge:
    r"""A sample counts less the longer it has been in memory.

    .. math::  \lambda_j = \tau_j^{-\kappa}

    With :math:`\kappa = 1` and weights by total weight, a client that has held 100 samples for ten rounds
    counts as much as one that has just received ten: nearly the Uniform strategy of Marfoq et al. (2023),
    without anybody having to know how long a sample will stay.

    Symbols, Marfoq et al. 2023 -> here
        :math:`\lambda_j`  sample weight          -> the result
        :math:`\tau_j`     rounds in memory       -> Holding.stays

    Differs from the paper: there :math:`\tau_j` is the whole stay, known beforehand; here the stay so far.
    """

    power: float = 1.0

    def __post_init__(self) -> None:
        check_ranges(self, power="[0, inf)")

    def weigh(self, holding: SampleAges) -> Floats:
        weights: Floats = holding.ages.astype(float) ** -self.power
        return weights
