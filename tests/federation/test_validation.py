from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.examples import some_updates
from thalweg.aggregation import ConstantDiscount, HingeDiscount, PolynomialDiscount, RejectLate
from thalweg.core.types import Ints, Job, Updates
from thalweg.federation import NO_REQUESTS, match_updates, max_wait
from thalweg.federation.extensions.staleness import MAX_WAIT, drop_expired, update_open_requests

ANY = ConstantDiscount()


def rows(*pairs: tuple[int, int], models: Sequence[int] | None = None) -> Updates:
    """Updates of some clients, each with the round it was trained in."""
    clients, trained_in = ([pair[k] for pair in pairs] for k in (0, 1))
    updates = some_updates(clients, 2, deltas=[[c, t] for c, t in pairs])
    return replace(
        updates,
        trained_in=np.array(trained_in, dtype=np.int64),
        models=updates.models if models is None else np.array(models),
    )


def orders(*pairs: tuple[int, int]) -> Ints:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def who_and_when(updates: Updates) -> list[tuple[int, int]]:
    return [(int(client), int(then)) for client, then in updates.deltas]


def test_late_row_is_accepted_if_its_request_is_open() -> None:
    came = rows((2, 5), (7, 3), (1, 5))
    updates = match_updates(came, [Job(1), Job(2), Job(4)], 5, orders((7, 3)))
    assert who_and_when(updates) == [(1, 5), (2, 5), (7, 3)]
    assert updates.trained_in is not None
    assert updates.trained_in.tolist() == [5, 5, 3]
    assert updates.staleness(5).tolist() == [0, 0, 2]
    assert updates.extra_metrics == {"missing": 1, "late": 1, "mean_staleness": 2.0}


def test_late_row_without_an_open_request_is_rejected() -> None:
    updates = match_updates(rows((7, 3), (1, 5)), [Job(1)], 5)
    assert who_and_when(updates) == [(1, 5)]
    assert updates.trained_in is None
    assert updates.extra_metrics == {"rejected": 1}


def test_late_and_current_rows_of_a_client_are_sorted_oldest_first() -> None:
    came = rows((7, 5), (3, 5), (7, 3), (7, 4))
    updates = match_updates(came, [Job(3), Job(7)], 5, orders((7, 3), (7, 4)))
    assert who_and_when(updates) == [(3, 5), (7, 3), (7, 4), (7, 5)]
    assert updates.is_newest.tolist() == [True, False, False, True]
    assert updates.extra_metrics == {"late": 2, "mean_staleness": 1.5}


def test_repeated_row_counts_once() -> None:
    came = rows((7, 3), (7, 3), (7, 5), (7, 5))
    updates = match_updates(came, [Job(7)], 5, orders((7, 3)))
    assert who_and_when(updates) == [(7, 3), (7, 5)]
    assert updates.extra_metrics["rejected"] == 2


def test_rows_of_a_later_round_or_another_model_are_rejected() -> None:
    updates = match_updates(rows((7, 6), (7, 3), models=[0, 1]), [Job(1)], 5, orders((7, 3)))
    assert len(updates) == 0
    assert updates.extra_metrics == {"missing": 1, "rejected": 2}


def test_rejections_of_the_federation_are_added() -> None:
    came = replace(rows((7, 3)), extra_metrics={"rejected": 2})
    assert match_updates(came, [Job(1)], 5).extra_metrics == {"missing": 1, "rejected": 3}


def test_training_rounds_are_dropped_if_no_row_is_late() -> None:
    came = rows((1, 5), (2, 5))
    updates = match_updates(came, [Job(1), Job(2)], 5, orders((7, 3)))
    assert updates.trained_in is None
    assert updates.deltas is came.deltas, "nothing is copied"
    assert updates.extra_metrics == {}


# --- orders that stay open ---


def test_requests_without_a_response_stay_open() -> None:
    jobs, accepted = [Job(1), Job(2), Job(4)], rows((2, 5))
    assert update_open_requests(orders((7, 3)), jobs, accepted, 5, ANY).tolist() == [
        [7, 3],
        [1, 5],
        [4, 5],
    ]
    assert update_open_requests(orders((7, 3)), jobs, accepted, 5, RejectLate()).tolist() == []


def test_request_is_closed_by_its_response_or_a_newer_one() -> None:
    open_requests = orders((7, 2), (7, 3), (7, 4), (8, 3))
    accepted = match_updates(rows((7, 3)), [Job(1)], 5, open_requests)
    assert update_open_requests(open_requests, [], accepted, 5, ANY).tolist() == [[7, 4], [8, 3]]
    accepted = match_updates(rows((7, 5), (7, 3)), [Job(7)], 5, open_requests)
    assert update_open_requests(open_requests, [Job(7)], accepted, 5, ANY).tolist() == [[8, 3]]


def test_old_requests_are_closed() -> None:
    rule, no_rows = PolynomialDiscount(max_staleness=2), rows()
    assert update_open_requests(orders((7, 3), (8, 4)), [Job(1)], no_rows, 5, rule).tolist() == [
        [8, 4],
        [1, 5],
    ]
    assert drop_expired(orders((7, 3), (8, 4)), 6, rule).tolist() == [[8, 4]]
    assert drop_expired(orders((7, 3), (8, 4)), 6, RejectLate()).tolist() == []


def test_requests_are_closed_after_the_maximum_number_of_rounds() -> None:
    assert max_wait(RejectLate()) == 0
    assert max_wait(HingeDiscount(max_staleness=5)) == 5
    assert max_wait(HingeDiscount()) == max_wait(HingeDiscount(max_staleness=10**6)) == MAX_WAIT
    open_requests, no_rows = NO_REQUESTS, rows()
    for rnd in range(3 * MAX_WAIT):
        open_requests = update_open_requests(open_requests, [Job(0), Job(1)], no_rows, rnd, ANY)
    assert len(open_requests) == 2 * MAX_WAIT


@given(st.data())
def test_each_request_is_answered_at_most_once_and_each_client_in_order(
    data: st.DataObject,
) -> None:
    """Rows of three clients arrive in any round, repeatedly, and may be from any round."""
    accepted: list[tuple[int, int]] = []
    requested: set[tuple[int, int]] = set()
    open_requests = NO_REQUESTS
    rule = ConstantDiscount(max_staleness=3)
    for rnd in range(6):
        cohort = data.draw(st.lists(st.integers(0, 2), unique=True))
        jobs = [Job(client) for client in cohort]
        requested |= {(client, rnd) for client in cohort}
        came = data.draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, rnd + 1))))
        updates = match_updates(rows(*came), jobs, rnd, drop_expired(open_requests, rnd, rule))
        assert len(updates) + updates.extra_metrics.get("rejected", 0) == len(came)
        assert (updates.staleness(rnd) <= 3).all()
        open_requests = update_open_requests(open_requests, jobs, updates, rnd, rule)
        assert len(open_requests) <= 3 * 3
        accepted += who_and_when(updates)
    assert len(accepted) == len(set(accepted)), "each row once"
    assert set(accepted) <= requested, "only requested rows"
    for client in range(3):
        order = [then for who, then in accepted if who == client]
        assert order == sorted(order), "in the order in which it was trained"


@pytest.mark.parametrize("trained_in", [None, [4, 4]])
def test_round_without_rows_is_valid(trained_in: list[int] | None) -> None:
    came = some_updates([], 2)
    if trained_in is not None:
        came = replace(came, trained_in=np.empty(0, dtype=np.int64))
    updates = match_updates(came, [Job(1)], 4, orders((1, 3)))
    assert len(updates) == 0
    assert updates.extra_metrics == {"missing": 1}
    assert updates.is_newest.tolist() == []
