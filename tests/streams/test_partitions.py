from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.core.types import Ints
from thalweg.streams import (
    Dirichlet,
    Distinct,
    Even,
    Groups,
    Half,
    Overlap,
    Pachinko,
    PartialOverlap,
    Partition,
    Setting,
    TwoShard,
)
from thalweg.streams.partitions import PARTITIONS
from thalweg.streams.splitting import imbalanced_counts, make_imbalanced


def setting(labels: Any, **columns: Any) -> Setting:
    labels = np.asarray(labels)
    return Setting(labels, int(labels.max()) + 1, 1, 10, 10, 0, **columns)


def partition_rows(
    partition: Partition, where: Setting, num_clients: int, seed: int = 0
) -> list[Ints]:
    rows = np.arange(len(where.labels))
    return partition.assign_rows(rows, where, num_clients, np.random.default_rng(seed))


@settings(max_examples=60, deadline=None)
@given(
    labels=st.lists(st.integers(0, 5), min_size=1, max_size=80),
    num_clients=st.integers(1, 12),
    kind=st.sampled_from(("dirichlet", "even", "groups", "pachinko")),
    seed=st.integers(0, 9),
)
def test_partitions_assign_every_row_to_exactly_one_client(
    labels: list[int], num_clients: int, kind: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    where = setting(
        labels,
        coarse=np.array(labels) // 2,
        client=rng.integers(0, num_clients, len(labels)),
    )
    partition: Partition = PARTITIONS[kind]()
    hands = partition_rows(partition, where, num_clients, seed)
    assert len(hands) == num_clients
    assert sorted(row for hand in hands for row in hand.tolist()) == list(range(len(labels)))
    again = partition_rows(partition, where, num_clients, seed)
    assert [hand.tolist() for hand in again] == [hand.tolist() for hand in hands]


@settings(max_examples=40, deadline=None)
@given(
    labels=st.lists(st.integers(0, 5), min_size=1, max_size=80),
    num_clients=st.integers(1, 12),
    ratio=st.floats(0.01, 1.0),
)
def test_imbalanced_dirichlet_assigns_only_the_kept_rows_once_each(
    labels: list[int], num_clients: int, ratio: float
) -> None:
    where = setting(labels)
    hands = partition_rows(Dirichlet(0.5, imbalance=ratio), where, num_clients)
    rows = np.concatenate(hands)
    assert len(set(rows.tolist())) == len(rows)
    sizes = np.bincount(where.labels)
    kept = np.bincount(where.labels[rows], minlength=len(sizes))
    assert kept.tolist() == imbalanced_counts(sizes, ratio).tolist()


def test_even_partition_sizes_differ_by_at_most_one_row() -> None:
    hands = partition_rows(Even(), setting(np.zeros(11, dtype=int)), 3)
    assert [len(hand) for hand in hands] == [4, 4, 3]


def test_groups_partition_uses_the_groups_of_the_data() -> None:
    where = setting([0, 1, 0, 1], client=np.array([2, 0, 2, 0]))
    assert [hand.tolist() for hand in partition_rows(Groups(), where, 3)] == [[1, 3], [], [0, 2]]


def test_groups_partition_without_groups_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"partition=groups needs .* use partition=dirichlet"):
        partition_rows(Groups(), setting([0, 1]), 2)


def test_large_concentration_gives_every_client_the_same_class_mix() -> None:
    labels = np.arange(4000) % 4
    for hand in partition_rows(Dirichlet(1e6), setting(labels), 10):
        # 100 of each class, with a relative standard deviation of about 1 / sqrt(1e6).
        assert abs(np.bincount(labels[hand], minlength=4) - 100).max() <= 2


def test_small_concentration_gives_each_class_to_few_clients() -> None:
    labels = np.arange(4000) % 4
    hands = partition_rows(Dirichlet(0.01), setting(labels), 10)
    counts = np.stack([np.bincount(labels[hand], minlength=4) for hand in hands])  # (N, C)
    # With a = 0.01 and ten clients the largest share is 0.9 in the mean.
    assert (counts.max(axis=0) > 500).all()
    assert (counts.sum(axis=1) == 0).any(), "some come away empty, and may"


def test_dirichlet_fills_clients_up_to_the_minimum_size() -> None:
    hands = partition_rows(Dirichlet(0.01, min_size=7), setting(np.arange(100) % 4), 10)
    assert min(len(hand) for hand in hands) >= 7
    assert sum(len(hand) for hand in hands) == 100


def test_unattainable_minimum_size_is_rejected() -> None:
    with pytest.raises(ConfigError, match="100 samples cannot give 10 clients at least 11 each"):
        partition_rows(Dirichlet(min_size=11), setting(np.arange(100) % 4), 10)


def test_imbalanced_counts_match_the_dpcs_paper() -> None:
    kept = imbalanced_counts(np.full(10, 10_000), 0.8)
    assert kept.tolist() == [10000, 8000, 6400, 5120, 4096, 3276, 2621, 2097, 1677, 1342]
    assert kept.sum() == 44_629


def test_imbalanced_counts_start_from_the_smallest_class() -> None:
    kept = imbalanced_counts(np.full(10, 5000), 0.8)
    assert kept.tolist() == [5000, 4000, 3200, 2560, 2048, 1638, 1310, 1048, 838, 671]


def test_imbalanced_counts_never_exceed_the_class_size() -> None:
    assert imbalanced_counts(np.array([9, 3, 8]), 0.5, first=8).tolist() == [8, 3, 2]


def test_imbalanced_counts_ignore_empty_classes() -> None:
    assert imbalanced_counts(np.array([0, 40, 60]), 0.5).tolist() == [0, 20, 10]
    assert imbalanced_counts(np.array([0, 0]), 0.5).tolist() == [0, 0]


def test_imbalanced_rows_are_drawn_at_random() -> None:
    labels = np.arange(200) % 2
    rows = np.arange(200)
    one, other = (make_imbalanced(rows, labels, 0.5, np.random.default_rng(s)) for s in (0, 1))
    assert np.bincount(labels[one]).tolist() == [100, 50]
    assert sorted(one.tolist()) != sorted(other.tolist())


@pytest.mark.parametrize(
    "bad",
    [
        {"concentration": 0.0},
        {"concentration": float("inf")},
        {"concentration": float("nan")},
        {"imbalance": 0.0},
        {"imbalance": 1.1},
        {"min_size": -1},
    ],
    ids=str,
)
def test_invalid_dirichlet_options_are_rejected(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Dirichlet(**bad)


def test_all_partitions_are_registered() -> None:
    by_labels = {Overlap, TwoShard, Half, PartialOverlap, Distinct}
    assert set(PARTITIONS.values()) == {Dirichlet, Even, Groups, Pachinko} | by_labels
