from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.streams import Even, Groups, Half, Partition, Setting
from thalweg.streams.historical import ClientRows, HistoricalSplit, assign_rows, scale_sizes

LABELS = np.arange(120) % 3
GROUP = np.repeat(np.arange(6), 20)


def partition_clients(
    partition: Partition,
    num_clients: int | None = None,
    *,
    clients: float = 0.5,
    data: float | None = None,
    samples: int | None = None,
    client: Any = GROUP,
    seed: int = 0,
) -> ClientRows:
    where = Setting(LABELS, 3, 1, 10, 10, seed, client=client)
    history = HistoricalSplit(clients, data, samples)
    return assign_rows(partition, where, num_clients, history, np.random.default_rng(seed))


def sizes(holdings: ClientRows) -> list[int]:
    return [len(rows) for rows in holdings.rows]


def test_default_number_of_clients_is_20() -> None:
    assert sizes(partition_clients(Even())) == [6] * 20


def test_first_clients_of_a_partition_are_historical() -> None:
    assert partition_clients(Even(), 5, clients=0.4).is_historical.tolist() == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert partition_clients(Even(), 5, clients=0.0).is_historical.sum() == 0
    assert partition_clients(Even(), 5, clients=1.0).is_historical.sum() == 5


def test_historical_clients_get_the_given_share_of_samples() -> None:
    assert sizes(partition_clients(Even(), 6, data=0.2)) == [8, 8, 8, 32, 32, 32]
    assert sizes(partition_clients(Even(), 6, data=0.0)) == [0, 0, 0, 40, 40, 40]


def test_historical_and_fresh_samples_are_drawn_from_all_rows() -> None:
    old = np.concatenate(partition_clients(Even(), 6, data=0.5).rows[:3])
    assert len(old) == 60
    assert old.min() < 10
    assert old.max() >= 110


def test_total_number_of_samples_can_be_limited() -> None:
    holdings = partition_clients(Even(), 4, data=0.25, samples=40)
    assert sizes(holdings) == [5, 5, 15, 15]
    assert len(set(np.concatenate(holdings.rows).tolist())) == 40


def test_grouped_clients_keep_their_rows_and_historical_ones_are_drawn() -> None:
    holdings = partition_clients(Groups(), clients=0.34)
    for client, rows in enumerate(holdings.rows):
        assert sorted(rows.tolist()) == list(range(20 * client, 20 * client + 20))
    assert holdings.is_historical.sum() == 2
    drawn = {
        tuple(np.flatnonzero(partition_clients(Groups(), seed=s).is_historical)) for s in range(10)
    }
    assert len(drawn) > 3


def test_grouped_clients_reach_the_historical_share_with_fewest_dropped_rows() -> None:
    holdings = partition_clients(Groups(), data=0.2)
    # Fresh clients keep their 60, which are four fifths of 75.
    kept = np.array(sizes(holdings))
    assert kept[~holdings.is_historical].tolist() == [20, 20, 20]
    assert kept[holdings.is_historical].tolist() == [5, 5, 5]
    for client, rows in enumerate(holdings.rows):
        assert set(GROUP[rows].tolist()) == {client}


def test_grouped_clients_are_scaled_to_the_given_number_of_samples() -> None:
    holdings = partition_clients(Groups(), data=0.2, samples=60)
    kept = np.array(sizes(holdings))
    assert kept[holdings.is_historical].tolist() == [4, 4, 4]
    assert kept[~holdings.is_historical].tolist() == [16, 16, 16]
    assert sizes(partition_clients(Groups(), samples=60)) == [10] * 6


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_grouped_clients_of_one_kind_can_lose_all_rows(share: float) -> None:
    holdings = partition_clients(Groups(), data=share)
    kept = np.array(sizes(holdings))
    assert kept[holdings.is_historical].sum() == 60 * share
    assert kept[~holdings.is_historical].sum() == 60 * (1 - share)


@given(
    have=st.lists(st.integers(0, 30), min_size=1, max_size=12),
    part=st.floats(0, 1),
)
def test_scale_sizes_reduces_all_sizes_by_the_same_share(have: list[int], part: float) -> None:
    total = int(part * sum(have))
    kept = scale_sizes(np.array(have), total)
    assert kept.sum() == total
    assert (kept <= have).all()
    assert abs(kept - np.array(have) * total / max(sum(have), 1)).max() <= 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_clients": 121}, "120 rows cannot be divided among 121 clients"),
        ({"samples": 121}, "has 120 samples, but samples=121"),
        (
            {"partition": Half(), "data": 0.2},
            "historical_data=0.2 assigns .* separately, but Half assigns labels to groups",
        ),
        ({"samples": 121, "partition": Groups()}, "has 120 samples, but samples=121"),
        ({"clients": 0.0, "data": 0.2}, "historical=0.0 makes 0 of 20 clients historical"),
        ({"clients": 1.0, "data": 0.2}, "historical=1.0 makes 20 of 20 clients historical"),
        ({"partition": Groups(), "num_clients": 7}, "6 clients, so num_clients=7"),
        ({"partition": Groups(), "client": None}, "partition=groups needs"),
        (
            {"partition": Groups(), "data": 0.2, "samples": 100},
            "need 20 of historical clients and 80 of fresh clients, but these have 60 and 60",
        ),
    ],
)
def test_invalid_partitions_are_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        partition_clients(**{"partition": Even(), **changes})
