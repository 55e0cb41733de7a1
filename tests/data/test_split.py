from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thalweg.core.errors import DataError
from thalweg.data.split import (
    split_by_unit,
    split_each_client,
    split_last,
    split_rows,
    stratified_split,
)

rows_of_groups = st.lists(st.tuples(st.integers(0, 4), st.floats(-10, 10)), min_size=1, max_size=60)
fractions = st.floats(0.01, 0.99)


@settings(deadline=None)
@given(rows_of_groups, fractions)
def test_split_last_covers_all_rows_and_leaves_training_rows_in_every_group(rows, fraction) -> None:
    group, time = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    train, test = split_last(group, time, fraction)
    assert sorted([*train, *test]) == list(range(len(rows)))
    assert (np.diff(train) > 0).all()
    assert (np.diff(test) > 0).all()
    assert set(group[train]) == set(group)
    for g in set(group):
        size = (group == g).sum()
        assert abs((group[test] == g).sum() - min(size * fraction, size - 1)) <= 0.5


@settings(deadline=None)
@given(rows_of_groups, fractions)
def test_split_last_never_trains_on_the_future_of_a_group(rows, fraction) -> None:
    group, time = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    train, test = split_last(group, time, fraction)
    for g in set(group[test]):
        assert time[train][group[train] == g].max() <= time[test][group[test] == g].min()


def test_split_by_time_and_client_matches_a_hand_computed_example() -> None:
    #                  client 0: rows 0, 2, 4, 6      client 1: rows 1, 3, 5, 7
    group = np.array([0, 1, 0, 1, 0, 1, 0, 1])
    time = np.array([4.0, 1.0, 3.0, 2.0, 2.0, 3.0, 1.0, 4.0])
    train, test = split_rows(np.zeros(8, dtype=int), group, time, 0.25, "toy")
    assert test.tolist() == [0, 7]
    assert train.tolist() == [1, 2, 3, 4, 5, 6]


def test_split_by_time_without_clients_uses_one_history() -> None:
    _, test = split_rows(np.zeros(4, dtype=int), None, np.array([3.0, 9.0, 1.0, 2.0]), 0.25, "toy")
    assert test.tolist() == [1]


def test_split_last_keeps_the_order_of_equal_times() -> None:
    _, test = split_last(np.zeros(4, dtype=int), np.zeros(4), 0.5)
    assert test.tolist() == [2, 3]


def test_stratified_split_takes_the_same_share_of_every_class_reproducibly() -> None:
    labels = np.repeat([0, 1, 2], [10, 20, 40])
    _, test = stratified_split(labels, 0.3)
    assert np.bincount(labels[test]).tolist() == [3, 6, 12]
    np.testing.assert_array_equal(test, stratified_split(labels, 0.3)[1])
    assert test[:3].tolist() != [7, 8, 9]  # drawn, not cut off the end


def test_empty_test_part_is_rejected() -> None:
    with pytest.raises(DataError, match=r"toy: a test part of 0\.2 of every class is empty with 2"):
        split_rows(np.array([0, 1]), None, None, 0.2, "toy")
    with pytest.raises(DataError, match="of every client is empty with 2 rows"):
        split_rows(np.array([0, 1]), np.array([0, 1]), np.zeros(2), 0.9, "toy")


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), min_size=1, max_size=30), fractions
)
def test_split_by_unit_keeps_units_together_and_class_shares(units, fraction) -> None:
    """A unit is a class and a number of samples."""
    labels = np.repeat([label for label, _ in units], [size for _, size in units])
    unit = np.repeat(np.arange(len(units)), [size for _, size in units])
    train, test = split_by_unit(labels, unit, fraction)
    assert sorted([*train, *test]) == list(range(len(labels)))
    assert set(unit[train]).isdisjoint(unit[test])
    assert set(labels[train]) == set(labels)  # every class is in the training part
    for label in set(labels):
        sizes = [size for mine, size in units if mine == label]
        if len(sizes) > 1:
            share = (labels[test] == label).sum()
            # The nearest of steps that are at most as long as the largest unit.
            room = sum(sizes) - max(sizes)
            assert share >= min(fraction * sum(sizes), room) - max(sizes) / 2
            assert share <= fraction * sum(sizes) + max(sizes) / 2


def test_class_with_a_single_unit_is_used_for_training() -> None:
    train, test = split_by_unit(np.zeros(5, dtype=np.int64), np.full(5, 9), 0.5)
    assert (len(train), len(test)) == (5, 0)


def test_split_by_unit_draws_units_at_random() -> None:
    labels, unit = np.zeros(1000, dtype=np.int64), np.arange(1000)
    _, test = split_by_unit(labels, unit, 0.2)
    assert len(test) == 200
    assert 400 < test.mean() < 600


def test_unit_with_two_classes_stays_together() -> None:
    labels, unit = np.array([0, 1] * 50), np.repeat(np.arange(50), 2)
    train, test = split_by_unit(labels, unit, 0.5)
    assert set(unit[train]).isdisjoint(unit[test])
    assert len(test) == 50


def test_split_each_client_takes_test_rows_from_every_client() -> None:
    group = np.array([3, 0, 3, 0, 3, 0, 3, 0, 0, 1])  # 5, 1, 0 and 4 rows
    train, test = split_each_client(group, 0.4, "here")
    assert sorted([*train, *test]) == list(range(10))
    assert np.bincount(group[test], minlength=4).tolist() == [2, 0, 0, 2]
    again = split_each_client(group, 0.4, "here")[1]
    assert test.tolist() == again.tolist()


def test_clients_too_small_for_a_test_part_are_rejected() -> None:
    with pytest.raises(
        DataError, match=r"here: a test part of 0.1 of every client is empty with 3"
    ):
        split_each_client(np.arange(3), 0.1, "here")
