from __future__ import annotations

import numpy as np
import pytest

from contracts.examples import some_roster, some_updates
from thalweg.aggregation import ByArrivals, MemorySummary
from thalweg.core.claims import Claim
from thalweg.core.types import Outlook

ONE = np.ones(1)
SUMMARY = MemorySummary(Outlook(ONE, ONE, ONE), ONE, ticks=1, num_arrived=60)


def test_a_client_reports_what_has_arrived_whatever_it_has_kept() -> None:
    for held in (20.0, 60.0):
        summary = SUMMARY._replace(total_weight=held, mass=held)
        assert ByArrivals().report(summary) == {"num_arrived": 60.0}


def test_arrivals_are_divided_among_models_as_the_stored_samples_are() -> None:
    summary = SUMMARY._replace(total_weight=20.0, mass=5.0)
    assert ByArrivals().report(summary) == {"num_arrived": 15.0}


def test_a_client_without_samples_counts_nothing() -> None:
    assert ByArrivals().report(SUMMARY._replace(num_arrived=0)) == {"num_arrived": 0.0}


def test_weights_are_proportional_and_zero_if_nothing_has_arrived() -> None:
    for arrived, expected in (([20.0, 60.0], [0.25, 0.75]), ([0.0, 0.0], [0.0, 0.0])):
        updates = some_updates([0, 2], 4, reports={"num_arrived": arrived})
        assert ByArrivals().weigh(updates, some_roster([0, 2], 4)).tolist() == expected


@pytest.mark.parametrize(
    "number, reason", [(-1.0, "only 0 to"), (1e300, "only 0 to"), (np.inf, "not finite")]
)
def test_impossible_numbers_are_rejected(number: float, reason: str) -> None:
    rule = ByArrivals()
    assert rule.validate_claim(Claim({"num_arrived": np.array([0.0, 60.0])}, 4, 2)) is None
    assert reason in str(rule.validate_claim(Claim({"num_arrived": np.array([number])}, 4, 1)))
    assert rule.validate_claim(Claim({}, 4, 1)) == "num_arrived is missing."
