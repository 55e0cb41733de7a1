from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from thalweg.aggregation.base import MemorySummary
from thalweg.core.claims import Claim, check_names, check_vector, first_reason
from thalweg.core.types import Floats, Roster, Updates

ARRIVED = "num_arrived"
MOST = 2.0**53  # larger numbers are no counts, and their sum might not be finite


@dataclass(frozen=True)
class ByArrivals:
    r"""The weight of an update is proportional to the samples that have arrived at its client.

    .. math::  p_n = A_n \big/ \textstyle\sum_{j} A_j

    A memory is a sample of all data that have arrived. A client whose memory is small counts as
    much as if it had kept everything, so that the weights are those of FedAvg with unlimited
    memories. As long as nothing has been dropped, the rule equals `BySamples`.

    With several models, each client divides its number among them as it divides its stored samples.

    Symbols: :math:`A_n` is `MemorySummary.num_arrived`, initial samples included. If all are zero,
    the model does not change.

    Differs from the strategy ``uniform`` of `OldAndNew`, which gives the same weights to clients at
    the end of a run, but has to know the length of the run and the rates of all clients.

    Client 0 holds all of its 20 samples, and client 1 holds 20 of 60:

    >>> from types import SimpleNamespace
    >>> updates = SimpleNamespace(reports={"num_arrived": np.array([20.0, 60.0])})
    >>> ByArrivals().weigh(updates, roster=None).tolist()
    [0.25, 0.75]
    """

    def report(self, summary: MemorySummary) -> Mapping[str, float]:
        if summary.total_weight <= 0:
            return {ARRIVED: 0.0}
        return {ARRIVED: summary.num_arrived * summary.mass / summary.total_weight}

    def validate_claim(self, claim: Claim) -> str | None:
        return first_reason(
            check_names(claim.uploads, ARRIVED),
            check_vector(claim.uploads, ARRIVED, least=0, most=MOST),
        )

    def weigh(self, updates: Updates, roster: Roster) -> Floats:
        arrived = updates.reports[ARRIVED]
        total = arrived.sum()
        return np.asarray(arrived / total) if total > 0 else np.zeros(len(arrived))
