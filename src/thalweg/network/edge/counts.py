"""What became of a device's samples, in numbers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class SampleCounts:
    """Kept with the samples, in the same transactions, so that the sum is always right:

    received = kept now + in the inbox + waiting for their labels + evicted + expired.
    """

    received: int = 0  # samples that were stored, none twice
    evicted: int = 0  # of these, not kept by the memory policy, or no longer
    expired: int = 0  # of these, gone because their labels took too long
    duplicates: int = 0  # recognised by their names, and not stored again
    rejected: int = 0  # of another form: shape, numbers that are not finite, unknown labels
    unmatched: int = 0  # labels for samples that nobody knows, or that have theirs
    lost: int = 0  # not stored because the device was too slow, and the source cannot wait
    tested: int = 0  # predicted between rounds, and not reported yet
    correct: int = 0
    rounds: int = 0  # in which the client has trained
    last_round: int = -1
    last_loss: float | None = None  # none: no step was taken


def counts_from_json(text: str | None) -> SampleCounts:
    return SampleCounts() if text is None else SampleCounts(**json.loads(text))


def counts_to_json(counts: SampleCounts) -> str:
    return json.dumps(asdict(counts))
