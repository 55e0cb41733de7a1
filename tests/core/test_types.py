from __future__ import annotations

from dataclasses import replace

import numpy as np

from contracts.examples import some_roster, some_updates


def test_only_some_rows_of_the_updates() -> None:
    updates = some_updates([4, 7, 9], num_params=2, reports={"score": [0.1, 0.2, 0.3]})
    some = updates.only(np.array([True, False, True]))
    assert len(some) == 2
    assert some.clients.tolist() == [4, 9]
    assert some.deltas.tolist() == updates.deltas[[0, 2]].tolist()
    assert some.losses.tolist() == updates.losses[[0, 2]].tolist()
    assert some.reports["score"].tolist() == [0.1, 0.3]


def test_all_rows_of_the_updates_are_the_updates() -> None:
    updates = some_updates([4, 7], num_params=2)
    assert updates.only(np.array([True, True])) is updates


def test_no_row_of_the_updates() -> None:
    updates = some_updates([4, 7], num_params=2, reports={"score": [0.1, 0.2]})
    nobody = updates.only(np.array([False, False]))
    assert len(nobody) == 0
    assert nobody.deltas.shape == (0, 2)
    assert nobody.reports["score"].shape == (0,)


def test_a_roster_knows_how_many_clients_there_are() -> None:
    assert some_roster(present=[1, 4], num_clients=6).num_clients == 6


def test_rows_of_the_updates_in_another_order() -> None:
    updates = some_updates([4, 7, 9], num_params=2, reports={"score": [0.1, 0.2, 0.3]})
    other = updates.take(np.array([2, 0]))
    assert other.clients.tolist() == [9, 4]
    assert other.deltas.tolist() == updates.deltas[[2, 0]].tolist()
    assert other.reports["score"].tolist() == [0.3, 0.1]


def test_without_rounds_nothing_is_stale() -> None:
    updates = some_updates([4, 7, 9], num_params=2)
    assert updates.staleness(5).tolist() == [0, 0, 0]
    assert updates.is_newest.tolist() == [True, True, True]


def test_staleness_is_counted_in_rounds_and_goes_with_the_rows() -> None:
    updates = replace(some_updates([4, 4, 9], num_params=2), trained_in=np.array([2, 5, 4]))
    assert updates.staleness(5).tolist() == [3, 0, 1]
    assert updates.is_newest.tolist() == [False, True, True]
    assert updates.take(np.array([2, 0])).staleness(6).tolist() == [2, 4]
