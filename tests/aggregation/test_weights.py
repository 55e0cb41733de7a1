from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from contracts.examples import some_roster, some_updates
from thalweg.aggregation import BySamples, ByWeight, Equal, MemorySummary
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Outlook


def weigh_by_samples(num_samples: Sequence[int]) -> list[float]:
    clients = list(range(len(num_samples)))
    updates = some_updates(clients, 2, num_samples=num_samples)
    return [float(p) for p in BySamples().weigh(updates, some_roster(clients, 8))]


def weigh_by_totals(
    totals: Sequence[float],
    known: Mapping[str, Floats] | None = None,
    clients: Sequence[int] | None = None,
    **kwargs: Any,
) -> list[float]:
    clients = range(len(totals)) if clients is None else clients
    updates = some_updates(clients, 2, reports={"total_weight": totals})
    roster = some_roster(sorted({*clients}), 4, known=known or {})
    return [float(p) for p in ByWeight(**kwargs).weigh(updates, roster)]


def test_equal_weights_do_not_depend_on_the_number_of_samples() -> None:
    updates = some_updates([1, 4, 5, 6], 2, num_samples=[1, 10, 100, 0])
    assert Equal().weigh(updates, some_roster([1, 4, 5, 6], 8)).tolist() == [0.25] * 4


def test_by_samples_weights_are_proportional_to_the_samples_held() -> None:
    assert weigh_by_samples([10, 30, 0]) == [0.25, 0.75, 0.0]


def test_by_samples_weights_are_equal_if_no_client_holds_samples() -> None:
    assert weigh_by_samples([0, 0]) == [0.5, 0.5]


def test_by_weight_weights_are_proportional_to_the_total_sample_weight() -> None:
    # Memories with sample weights (1, 1, 1, 1) and (2, 2) have equal totals.
    assert weigh_by_totals([4.0, 4.0]) == [0.5, 0.5]
    assert weigh_by_totals([10.0, 20.0]) == [1 / 3, 2 / 3]


def test_by_weight_weights_are_zero_if_all_totals_are_zero() -> None:
    assert weigh_by_totals([0.0, 0.0]) == [0, 0]


def test_by_weight_normalised_over_all_clients_counts_the_last_totals_of_absent_clients() -> None:
    known = {"total_weight": np.array([9.0, np.nan, 4.0, np.nan])}
    assert weigh_by_totals([2.0, 2.0], known, normalise="all") == [0.25, 0.25]


def test_by_weight_normalised_over_all_clients_counts_a_late_update_beside_a_new_one() -> None:
    known = {"total_weight": np.array([9.0, np.nan, 4.0, np.nan])}
    # Client 0 has two updates; the denominator is 1 + 3 + 4.
    weights = weigh_by_totals([1.0, 3.0], known, clients=[0, 0], normalise="all")
    assert weights == [1 / 8, 3 / 8]


def test_by_weight_reports_all_samples_or_the_part_of_one_model() -> None:
    one = np.ones(1)
    summary = MemorySummary(Outlook(one, one, one), one, ticks=1, total_weight=10.0, mass=2.5)
    assert ByWeight().report(summary) == {"total_weight": 10.0}
    assert ByWeight(basis="explained").report(summary) == {"total_weight": 2.5}
    with pytest.raises(ConfigError, match="normalise must be participants"):
        ByWeight(basis="explained", normalise="all")
