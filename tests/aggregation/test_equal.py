from __future__ import annotations

from contracts.examples import some_roster, some_updates
from thalweg.aggregation import Equal


def test_every_update_counts_the_same() -> None:
    updates = some_updates([1, 4, 5, 6], 2, num_samples=[1, 10, 100, 0])
    assert Equal().weigh(updates, some_roster([1, 4, 5, 6], 8)).tolist() == [0.25] * 4
