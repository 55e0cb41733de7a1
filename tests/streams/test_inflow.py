from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from thalweg.core.config import from_dict, to_dict, with_overrides
from thalweg.core.errors import ConfigError
from thalweg.streams import Bursts, ConstantRate, Dirichlet, Groups, Inflow, OneShot, Pachinko
from thalweg.streams.base import Setting


def test_inflow_round_trips_through_its_configuration() -> None:
    spec = Inflow(
        num_clients=7,
        partition=Dirichlet(0.1, imbalance=0.8),
        arrivals=Bursts(5, every=None, probability=0.25),
        historical=0.5,
        historical_data=0.2,
    )
    assert from_dict(Inflow, to_dict(spec)) == spec


def test_partitions_and_arrivals_are_selected_by_name() -> None:
    spec = with_overrides(
        Inflow(), ["partition=pachinko", "partition.root=0.3", "arrivals=one-shot"]
    )
    assert spec == Inflow(partition=Pachinko(root=0.3), arrivals=OneShot())
    assert with_overrides(Inflow(), ["partition=groups"]).partition == Groups()


@pytest.mark.parametrize(
    "bad",
    [
        {"num_clients": 0},
        {"samples": 0},
        {"historical": -0.1},
        {"historical": 1.1},
        {"historical": float("nan")},
        {"historical_data": 1.5},
        {"label_change": 2.0},
        {"rate_spread": -1.0},
        {"availability_spread": float("inf")},
        {"capacity_spread": float("nan")},
        {"capacity_of": "own", "capacity_spread": 0.5},
        {"availability": 0.0},
        {"absent": "away"},
        {"at_end": "silence"},
        {"capacity_of": "ones"},
    ],
    ids=str,
)
def test_invalid_inflow_options_are_rejected(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=list(bad)[-1]):
        Inflow(**bad)


def test_spread_of_rates_that_would_not_end_is_rejected() -> None:
    labels = np.arange(40) % 2
    setting = Setting(labels, num_classes=2, ticks=1, capacity=5, rounds=3, seed=0)
    arrivals = ConstantRate(per_round=1_000_000)
    with pytest.raises(ConfigError, match=r"samples per round, at most 1,000,000 .* rate_spread"):
        Inflow(num_clients=4, arrivals=arrivals, rate_spread=0.1).build(setting)
    with pytest.raises(ConfigError, match="rate_spread"):
        Inflow(rate_spread=11.0)
