from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Roster, SampleAges


@dataclass(frozen=True)
class Early:
    r"""Train only in the first part of the run: afterwards all samples have weight 0.

    .. math::  \lambda_j = 1 \text{ if } t < \text{share} \cdot T_m, \text{ else } 0

    Each client trains in the first `share` of the rounds in which it is expected to be present.
    When no client trains any more the model does not change, but is still tested on arriving
    samples: a baseline for methods that adapt.

    Symbols -> here
        t             earlier rounds in which client m was present  -> Roster.times_present
        :math:`T_m`   expected number of such rounds                -> Roster.supplies.rounds

    >>> samples = SampleAges(ages=np.array([1, 5]), labels=np.array([0, 1]), assigned=0.0)
    >>> Early().weigh(samples).tolist()  # the server has assigned 0: the first part is over
    [0.0, 0.0]
    """

    share: float = 0.25

    def __post_init__(self) -> None:
        check_ranges(self, share="(0, 1]")

    def weigh(self, samples: SampleAges) -> Floats:
        return np.full(len(samples.ages), float(samples.assigned))

    def assign_weights(self, roster: Roster, num_params: int) -> Floats:
        """Return (N,) 1 for clients that still train, else 0."""
        if roster.supplies is None:
            raise ConfigError(
                "early needs the number of rounds in which clients will be present, but this "
                "federation does not provide it (Roster.supplies is None). Use another "
                "sample_weights."
            )
        return (roster.times_present < self.share * roster.supplies.rounds).astype(np.float64)
