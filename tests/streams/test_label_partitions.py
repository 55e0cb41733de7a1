from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.core.types import Ints
from thalweg.streams import Distinct, Half, PartialOverlap, Partition, Setting, TwoShard
from thalweg.streams.label_partitions import split_labels

TEN = np.repeat(np.arange(10), 60)
HUNDRED = np.repeat(np.arange(100), 20)


def partition_labels(
    partition: Partition, labels: Ints, num_clients: int, seed: int = 0
) -> list[Ints]:
    where = Setting(labels, int(labels.max()) + 1, 1, 10, 10, seed)
    rng = np.random.default_rng(seed)
    return partition.assign_rows(rng.permutation(len(labels)), where, num_clients, rng)


def counts(hands: list[Ints], labels: Ints) -> Ints:
    """(N, C) samples of each label at each client."""
    return np.stack([np.bincount(labels[hand], minlength=labels.max() + 1) for hand in hands])


# --- the labels of two groups ---


@pytest.mark.parametrize(
    ("num_labels", "overlap", "first", "second"),
    [
        (10, 0.0, range(5), range(5, 10)),
        (10, 0.2, range(5), range(4, 9)),
        (100, 0.2, range(55), range(44, 99)),
        (200, 0.2, range(111), range(89, 200)),
        (4, 0.0, range(2), range(2, 4)),
        (4, 0.2, range(2), range(2, 4)),  # less than one label: halves
        (4, 0.6, range(2), range(1, 3)),
        (4, 0.8, range(3), range(1, 4)),
        (5, 0.0, range(2), range(2, 5)),
    ],
)
def test_split_labels_matches_the_paper(
    num_labels: int, overlap: float, first: range, second: range
) -> None:
    assert split_labels(num_labels, overlap) == (first, second)


@given(num_labels=st.integers(2, 300), overlap=st.floats(0, 0.99))
def test_split_label_groups_share_at_most_the_requested_overlap(
    num_labels: int, overlap: float
) -> None:
    first, second = split_labels(num_labels, overlap)
    shared = set(first) & set(second)
    assert len(first) >= 1
    assert len(second) >= 1
    assert set(first) | set(second) <= set(range(num_labels))
    assert len(shared) <= overlap * len(first) + 1e-6
    assert len(second) - len(first) in (0, 1)


def test_splitting_one_label_is_rejected() -> None:
    with pytest.raises(ConfigError, match="two groups need at least two labels, got data with 1"):
        split_labels(1, 0.0)


# --- two shards ---


@pytest.mark.parametrize("seed", range(5))
def test_two_shard_gives_each_of_ten_clients_halves_of_two_labels(seed: int) -> None:
    table = counts(partition_labels(TwoShard(), TEN, 10, seed), TEN)
    assert set(table.ravel().tolist()) == {0, 30}
    assert ((table > 0).sum(axis=1) == 2).all(), "different labels"
    assert ((table > 0).sum(axis=0) == 2).all(), "two clients per label"


def test_two_shard_gives_each_of_ten_clients_halves_of_20_of_100_labels() -> None:
    table = counts(partition_labels(TwoShard(), HUNDRED, 10), HUNDRED)
    assert set(table.ravel().tolist()) == {0, 10}
    assert ((table > 0).sum(axis=1) == 20).all()


def test_two_shard_draws_which_clients_share_a_label() -> None:
    tables = {
        counts(partition_labels(TwoShard(), TEN, 10, seed), TEN).tobytes() for seed in range(5)
    }
    assert len(tables) == 5


def test_two_shard_needs_at_least_two_clients() -> None:
    table = counts(partition_labels(TwoShard(), TEN, 2), TEN)
    assert table.tolist() == [[30] * 10] * 2
    with pytest.raises(ConfigError, match="needs at least two clients, got num_clients=1"):
        partition_labels(TwoShard(), TEN, 1)


# --- halves, and halves that overlap ---


def test_half_gives_each_half_of_the_clients_half_of_the_labels() -> None:
    table = counts(partition_labels(Half(), TEN, 4), TEN)
    assert table.tolist() == [[30] * 5 + [0] * 5] * 2 + [[0] * 5 + [30] * 5] * 2


def test_partial_overlap_divides_shared_labels_equally() -> None:
    hands = partition_labels(PartialOverlap(), TEN, 4)
    table = counts(hands, TEN)
    assert table.tolist() == (
        [[30, 30, 30, 30, 15, 15, 0, 0, 0, 0]] * 2 + [[0, 0, 0, 0, 15, 15, 30, 30, 30, 30]] * 2
    )
    assert len(set(np.concatenate(hands).tolist())) == 600, "no sample twice"


def test_partial_overlap_gives_60_of_100_labels_each_with_20_shared() -> None:
    has = counts(partition_labels(PartialOverlap(), HUNDRED, 2), HUNDRED) > 0
    assert has.sum(axis=1).tolist() == [60, 60]
    assert np.flatnonzero(has.all(axis=0)).tolist() == list(range(40, 60))


def test_partial_overlap_accepts_other_shares() -> None:
    has = counts(partition_labels(PartialOverlap(labels=0.5, shared=0.1), TEN, 2), TEN) > 0
    assert np.flatnonzero(has[0]).tolist() == [0, 1, 2, 3, 4]
    assert np.flatnonzero(has[1]).tolist() == [4, 5, 6, 7, 8]


@settings(max_examples=60, deadline=None)
@given(
    labels=st.lists(st.integers(0, 7), min_size=30, max_size=90).filter(lambda x: len(set(x)) > 3),
    half=st.integers(1, 3),
    kind=st.sampled_from((Half, PartialOverlap)),
    seed=st.integers(0, 9),
)
def test_half_partitions_are_even_up_to_one_sample(
    labels: list[int], half: int, kind: Any, seed: int
) -> None:
    array = np.array(labels)
    hands = partition_labels(kind(), array, 2 * half, seed)
    rows = np.concatenate(hands)
    assert len(set(rows.tolist())) == len(rows), "no sample twice"
    table = counts(hands, array)
    for group in (table[:half], table[half:]):
        assert np.ptp(group, axis=0).max() <= 1
        assert np.ptp(group.sum(axis=1)) <= 1
    assert [hand.tolist() for hand in partition_labels(kind(), array, 2 * half, seed)] == [
        hand.tolist() for hand in hands
    ]


# --- distinct labels ---


def test_distinct_gives_every_client_all_samples_of_its_own_labels() -> None:
    assert counts(partition_labels(Distinct(), TEN, 10), TEN).tolist() == (60 * np.eye(10)).tolist()
    table = counts(partition_labels(Distinct(), HUNDRED, 10), HUNDRED)
    assert np.flatnonzero(table[3]).tolist() == list(range(30, 40))


def test_distinct_ignores_labels_without_samples() -> None:
    odd = np.repeat([0, 3, 7, 9], 20)
    assert (
        counts(partition_labels(Distinct(), odd, 4), odd)[:, [0, 3, 7, 9]].tolist()
        == (20 * np.eye(4)).tolist()
    )
    assert np.flatnonzero(counts(partition_labels(Half(), odd, 2), odd)[1]).tolist() == [7, 9]


# --- invalid input ---


@pytest.mark.parametrize(
    ("partition", "num_clients", "message"),
    [
        (Half(), 7, "partition=half needs two groups .* num_clients must be even, got 7"),
        (PartialOverlap(), 3, "partition=partial-overlap needs two groups"),
        (TwoShard(), 20, "partition=two-shard .* 10 labels are not a multiple of num_clients=20"),
        (TwoShard(), 3, "use 10 clients or a divisor"),
        (Distinct(), 4, "partition=distinct gives all clients the same number of labels"),
        (Half(), 602, "300 samples of a group's 5 labels are not enough for 301 clients"),
        (PartialOverlap(labels=0.05, shared=0.0), 2, "0.05 of 10 labels is less than one"),
    ],
)
def test_unsuitable_numbers_of_clients_are_rejected(
    partition: Any, num_clients: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        partition_labels(partition, TEN, num_clients)


@pytest.mark.parametrize(
    "bad",
    [
        {"labels": 0.0},
        {"labels": 1.2},
        {"shared": -0.1},
        {"labels": 0.8, "shared": 0.2},
        {"labels": 0.3, "shared": 0.4},
    ],
    ids=str,
)
def test_invalid_label_shares_are_rejected(bad: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        PartialOverlap(**bad)
