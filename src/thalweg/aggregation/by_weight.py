from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from thalweg.aggregation.base import MemorySummary
from thalweg.core.claims import Claim, check_vector
from thalweg.core.config import check_literals
from thalweg.core.errors import require
from thalweg.core.types import Floats, Roster, Updates

TOTAL = "total_weight"


@dataclass(frozen=True)
class ByWeight:
    r"""An update counts by the total weight of the samples its client learns from.

    .. math::  p_m = W_m \big/ \textstyle\sum_{m' \in S} W_{m'}, \qquad W_m = \sum_{j} \lambda_j

    One number beside each update. Without an emphasis every sample weighs one, and this is `BySamples`.
    If all the weights are zero, the model stays as it is.

    Differs from Marfoq et al. (2023), where the sum runs over all clients (`normalise`).
    """

    normalise: Literal["participants", "all"] = "participants"
    """all: divide by the sum over every client that was ever heard of, which shrinks the step."""
    basis: Literal["learnt", "explained"] = "learnt"
    """What is added up where clients train several models on the same samples: all that each of them learns from,
    the same number for all its models, or only as far as the model in question explains it."""

    def __post_init__(self) -> None:
        check_literals(self)
        require(
            self.basis == "learnt" or self.normalise == "participants",
            "what other clients' models explain is not known of each model: with basis=explained, "
            "normalise must be participants.",
        )

    def report(self, summary: MemorySummary) -> Mapping[str, float]:
        return {TOTAL: summary.total_weight if self.basis == "learnt" else summary.mass}

    def validate_claim(self, claim: Claim) -> str | None:
        return check_vector(claim.uploads, TOTAL, least=0)

    def weigh(self, updates: Updates, roster: Roster) -> Floats:
        mine = updates.reports[TOTAL]
        everyone = mine
        if self.normalise == "all":
            everyone = roster.known.get(TOTAL, np.full(roster.num_clients, np.nan)).copy()
            everyone[updates.clients] = 0.0
            np.add.at(everyone, updates.clients, mine)  # twice, if a client has a late update, too
        total = np.nansum(everyone)
        return mine / total if total > 0 else np.zeros(len(mine))
