import numpy as np
import pytest

from contracts.examples import some_roster, some_updates
from thalweg.aggregation import ByWeight, MemorySummary
from thalweg.core.errors import ConfigError
from thalweg.core.types import Outlook


def weigh(totals, known=None, **kwargs):
    clients = list(range(len(totals)))
    roster = some_roster(clients, 4, known=known or {})
    return ByWeight(**kwargs).weigh(
        some_updates(clients, 2, reports={"total_weight": totals}), roster
    )


def test_a_client_counts_by_the_sum_of_its_samples_weights():
    # The sheet: memories with weights (1, 1, 1, 1) and (2, 2) count half each.
    assert weigh([4.0, 4.0]).tolist() == [0.5, 0.5]
    assert weigh([10.0, 20.0]).tolist() == [1 / 3, 2 / 3]


def test_if_nobodys_samples_count_the_step_is_nothing():
    assert weigh([0.0, 0.0]).tolist() == [0, 0]


def test_absent_clients_shrink_the_step_if_they_are_counted():
    known = {"total_weight": np.array([9.0, np.nan, 4.0, np.nan])}
    assert weigh([2.0, 2.0], known, normalise="all").tolist() == [0.25, 0.25]


def test_of_several_models_each_may_count_by_what_it_explains():
    one = np.ones(1)
    summary = MemorySummary(Outlook(one, one, one), one, ticks=1, total_weight=10.0, mass=2.5)
    assert ByWeight().report(summary) == {"total_weight": 10.0}
    assert ByWeight(basis="explained").report(summary) == {"total_weight": 2.5}
    with pytest.raises(ConfigError, match="normalise must be participants"):
        ByWeight(basis="explained", normalise="all")
