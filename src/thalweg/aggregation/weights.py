"""Simple rules for the weights of updates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from thalweg.aggregation.base import MemorySummary
from thalweg.core.claims import Claim, check_names, check_vector, first_reason
from thalweg.core.config import check_literals
from thalweg.core.errors import require
from thalweg.core.types import Floats, Roster, Updates

TOTAL = "total_weight"


@dataclass(frozen=True)
class Equal:
    r"""All updates have the same weight.

    .. math::  p_n = 1 / K

    Symbols: K is the number of updates in the round.

    >>> four_updates = range(4)  # the rule reads the number of updates only
    >>> Equal().weigh(four_updates, roster=None).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """

    needs_individual_updates = False

    def weigh(self, updates: Updates, roster: Roster) -> Floats:
        return np.full(len(updates), 1 / len(updates))


@dataclass(frozen=True)
class BySamples:
    r"""The weight of an update is proportional to the number of samples its client holds.

    .. math::  p_n = N_n \big/ \textstyle\sum_{j} N_j

    Symbols: :math:`N_n` is `Updates.num_samples`; the sum runs over the updates of the round. This
    is the weighting of FedAvg (McMahan et al. 2017). If no client holds samples, all weights are
    equal.

    >>> from types import SimpleNamespace
    >>> updates = SimpleNamespace(num_samples=np.array([10, 30, 0]))  # the only field that is read
    >>> BySamples().weigh(updates, roster=None).tolist()
    [0.25, 0.75, 0.0]
    """

    needs_individual_updates = False
    uses_num_samples = True

    def weigh(self, updates: Updates, roster: Roster) -> Floats:
        total = updates.num_samples.sum()
        if total == 0:
            return np.full(len(updates), 1 / len(updates))
        shares: Floats = updates.num_samples / total
        return shares


@dataclass(frozen=True)
class ByWeight:
    r"""The weight of an update is proportional to the total sample weight at its client.

    .. math::  p_m = W_m \big/ \textstyle\sum_{m' \in S} W_{m'}, \qquad W_m = \sum_{j} \lambda_j

    Each client reports :math:`W_m`, one number, beside its update. Without a sample weights policy
    each sample has weight one, and the rule equals `BySamples`. If all totals are zero, the model
    does not change.

    Symbols, Marfoq et al. 2023 -> here
        :math:`\lambda_j`  -> weight of sample j in the local loss (`Recipe.sample_weights`)
        :math:`W_m`        -> MemorySummary.total_weight
        S                  -> clients of the round

    Differs from the paper, where the sum runs over all clients (``normalise="all"``).

    >>> from types import SimpleNamespace
    >>> updates = SimpleNamespace(reports={"total_weight": np.array([10.0, 30.0])})
    >>> ByWeight().weigh(updates, roster=None).tolist()
    [0.25, 0.75]
    """

    normalise: Literal["participants", "all"] = "participants"
    """Clients in the denominator: those of the round, or all that have reported so far. With all,
    the weights sum to less than one and the step is shorter."""
    basis: Literal["learnt", "explained"] = "learnt"
    """Total to report if a client trains several models on the same samples: the weight of all
    samples that it trains on (learnt), or each model's part of it (explained)."""

    def __post_init__(self) -> None:
        check_literals(self)
        require(
            self.basis == "learnt" or self.normalise == "participants",
            "with basis=explained, normalise must be participants, got all: the totals of absent "
            "clients are not known for each model.",
        )

    def report(self, summary: MemorySummary) -> Mapping[str, float]:
        return {TOTAL: summary.total_weight if self.basis == "learnt" else summary.mass}

    def validate_claim(self, claim: Claim) -> str | None:
        return first_reason(
            check_names(claim.uploads, TOTAL), check_vector(claim.uploads, TOTAL, least=0)
        )

    def weigh(self, updates: Updates, roster: Roster) -> Floats:
        mine = updates.reports[TOTAL]
        counted = mine
        if self.normalise == "all":
            counted = roster.known.get(TOTAL, np.full(roster.num_clients, np.nan)).copy()
            counted[updates.clients] = 0.0
            np.add.at(counted, updates.clients, mine)  # a client with a late update counts twice
        total = np.nansum(counted)
        return mine / total if total > 0 else np.zeros(len(mine))
