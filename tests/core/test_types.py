"""`Updates` and `Roster`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from contracts.examples import some_roster, some_updates


def test_only_selects_rows_of_updates() -> None:
    updates = some_updates([4, 7, 9], num_params=2, reports={"score": [0.1, 0.2, 0.3]})
    some = updates.only(np.array([True, False, True]))
    assert len(some) == 2
    assert some.clients.tolist() == [4, 9]
    assert some.deltas.tolist() == updates.deltas[[0, 2]].tolist()
    assert some.losses.tolist() == updates.losses[[0, 2]].tolist()
    assert some.reports["score"].tolist() == [0.1, 0.3]


def test_only_with_all_rows_returns_the_same_object() -> None:
    updates = some_updates([4, 7], num_params=2)
    assert updates.only(np.array([True, True])) is updates


def test_only_with_no_rows_returns_empty_updates() -> None:
    updates = some_updates([4, 7], num_params=2, reports={"score": [0.1, 0.2]})
    empty = updates.only(np.array([False, False]))
    assert len(empty) == 0
    assert empty.deltas.shape == (0, 2)
    assert empty.reports["score"].shape == (0,)


def test_roster_has_the_number_of_clients() -> None:
    assert some_roster(present=[1, 4], num_clients=6).num_clients == 6


def test_take_reorders_rows_of_updates() -> None:
    updates = some_updates([4, 7, 9], num_params=2, reports={"score": [0.1, 0.2, 0.3]})
    other = updates.take(np.array([2, 0]))
    assert other.clients.tolist() == [9, 4]
    assert other.deltas.tolist() == updates.deltas[[2, 0]].tolist()
    assert other.reports["score"].tolist() == [0.3, 0.1]


def test_updates_without_rounds_are_not_stale() -> None:
    updates = some_updates([4, 7, 9], num_params=2)
    assert updates.staleness(5).tolist() == [0, 0, 0]
    assert updates.is_newest.tolist() == [True, True, True]


def test_staleness_is_counted_in_rounds_and_follows_the_rows() -> None:
    updates = replace(some_updates([4, 4, 9], num_params=2), trained_in=np.array([2, 5, 4]))
    assert updates.staleness(5).tolist() == [3, 0, 1]
    assert updates.is_newest.tolist() == [False, True, True]
    assert updates.take(np.array([2, 0])).staleness(6).tolist() == [2, 4]
