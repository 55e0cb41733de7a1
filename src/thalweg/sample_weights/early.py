from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Roster, SampleAges


@dataclass(frozen=True)
class Early:
    """Learn in the first part of the run and never again: afterwards no sample counts.

    Each client learns in the first `share` of the rounds in which it is expected to be here; from then on it has
    no say, and once nobody learns any more the model stays as it is. It is still tested on what arrives, which
    says what a model is worth that was trained once: the baseline that whoever adapts has to beat.
    """

    share: float = 0.25

    def __post_init__(self) -> None:
        check_ranges(self, share="(0, 1]")

    def weigh(self, holding: SampleAges) -> Floats:
        return np.full(len(holding.ages), float(holding.assigned))

    def assign_weights(self, roster: Roster, num_params: int) -> Floats:
        """(N,) 1 for those who still learn."""
        if roster.supplies is None:
            raise ConfigError(
                "early needs to know in how many rounds clients will be here; this federation does not say "
                "(Roster.supplies). Use another sample_weights."
            )
        return (roster.times_present < self.share * roster.supplies.rounds).astype(np.float64)
