"""Counters of a device's samples."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class SampleCounts:
    """Stored in the same transactions as the samples, so that this sum always holds:

    received = stored in memory + in the inbox + waiting for labels + evicted + expired.
    """

    received: int = 0  # stored samples, without duplicates
    evicted: int = 0  # of these, not or no longer kept by the memory policy
    expired: int = 0  # of these, dropped because their labels did not arrive in time
    duplicates: int = 0  # recognised by their names and not stored again
    rejected: int = 0  # invalid: wrong shape, non-finite numbers, invalid targets
    unmatched: int = 0  # labels of unknown samples or of samples that have a label
    lost: int = 0  # not stored because the device was too slow and the source cannot wait
    tested: int = 0  # predicted between rounds and not reported yet
    correct: int = 0
    error_sum: float = 0.0  # regression: sum of their absolute errors
    rounds: int = 0  # rounds in which the client has trained
    last_round: int = -1
    last_loss: float | None = None  # None: no step was taken


def counts_from_json(text: str | None) -> SampleCounts:
    return SampleCounts() if text is None else SampleCounts(**json.loads(text))


def counts_to_json(counts: SampleCounts) -> str:
    return json.dumps(asdict(counts))
