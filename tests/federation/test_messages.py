from __future__ import annotations

import numpy as np

from thalweg.core.types import Job
from thalweg.federation import make_train_requests, select_client_broadcast

BANK = np.array([[1, 1], [2, 2]], dtype=np.float32)


def test_client_receives_its_own_row_of_each_broadcast() -> None:
    broadcast = {"memory": {"word": np.array([[1.0], [2.0]])}, "objective": {}}
    assert select_client_broadcast(broadcast, [1]) == {
        "memory": {"word": np.array([2.0])},
        "objective": {},
    }
    assert select_client_broadcast(None, [0]) == {}


def test_client_receives_the_averaged_model_of_each_of_its_jobs() -> None:
    rows = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    broadcast = {"serving": {"averages": rows}, "memory": {"word": rows}}
    found = select_client_broadcast(broadcast, [2, 0])
    assert found["serving"]["averages"].tolist() == [5, 6, 1, 2]
    assert found["memory"]["word"].tolist() == [5, 6]


def test_requests_do_not_depend_on_the_order_of_the_jobs() -> None:
    jobs = [Job(5, 1, 0.5), Job(2)]
    broadcast = {"memory": {"word": np.array([[50], [20]], dtype=np.float32)}}
    first, second = make_train_requests(jobs, BANK, 3, broadcast)
    assert (first.client, first.models.tolist(), first.lr_scales.tolist(), first.rnd) == (
        2,
        [0],
        [1],
        3,
    )
    assert (second.client, second.models.tolist(), second.lr_scales.tolist()) == (5, [1], [0.5])
    assert (first.params.tolist(), second.params.tolist()) == ([[1, 1]], [[2, 2]])
    assert first.broadcast["memory"]["word"].tolist() == [20]
    assert second.broadcast["memory"]["word"].tolist() == [50]


def test_request_contains_only_the_models_of_its_client() -> None:
    (order,) = make_train_requests([Job(0, 1)], BANK, 0)
    assert order.params.tolist() == [[2, 2]]


def test_several_jobs_of_one_client_are_one_request() -> None:
    broadcast = {"bank": {"word": np.array([[7], [7], [5]], dtype=np.float32)}}
    first, second = make_train_requests([Job(3, 1, 0.5), Job(3, 0), Job(1, 0)], BANK, 0, broadcast)
    assert (first.client, second.client) == (1, 3)
    assert (second.models.tolist(), second.lr_scales.tolist()) == ([0, 1], [1, 0.5])
    assert second.params.tolist() == [[1, 1], [2, 2]]
    assert (
        first.broadcast["bank"]["word"].tolist(),
        second.broadcast["bank"]["word"].tolist(),
    ) == ([5], [7])
