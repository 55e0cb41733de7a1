from __future__ import annotations

from contracts.examples import some_roster, some_updates
from thalweg.aggregation import BySamples


def weights(num_samples: list[int]) -> list[float]:
    clients = list(range(len(num_samples)))
    updates = some_updates(clients, 2, num_samples=num_samples)
    return [float(p) for p in BySamples().weigh(updates, some_roster(clients, 8))]


def test_an_update_counts_in_proportion_to_the_samples_held() -> None:
    assert weights([10, 30, 0]) == [0.25, 0.75, 0.0]


def test_if_nobody_holds_any_all_count_the_same() -> None:
    assert weights([0, 0]) == [0.5, 0.5]
