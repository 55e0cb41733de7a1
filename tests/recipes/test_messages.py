from __future__ import annotations

import numpy as np

from thalweg.core.types import Job
from thalweg.recipes.messages import heard_by, orders_for

BANK = np.array([[1, 1], [2, 2]], dtype=np.float32)


def test_a_client_hears_its_own_row_of_every_message() -> None:
    told = {"memory": {"word": np.array([[1.0], [2.0]])}, "objective": {}}
    assert heard_by(told, 1) == {"memory": {"word": np.array([2.0])}, "objective": {}}
    assert heard_by(None, 0) == {}


def test_orders_do_not_depend_on_the_order_of_the_jobs() -> None:
    jobs = [Job(5, 1, 0.5), Job(2)]
    told = {"memory": {"word": np.array([[50], [20]], dtype=np.float32)}}
    first, second = orders_for(jobs, BANK, 3, told)
    assert (first.client, first.models.tolist(), first.paces.tolist(), first.rnd) == (
        2,
        [0],
        [1],
        3,
    )
    assert (second.client, second.models.tolist(), second.paces.tolist()) == (5, [1], [0.5])
    assert (first.params.tolist(), second.params.tolist()) == ([[1, 1]], [[2, 2]])
    assert first.told["memory"]["word"].tolist() == [20]
    assert second.told["memory"]["word"].tolist() == [50]


def test_an_order_holds_the_models_of_its_client_only() -> None:
    (order,) = orders_for([Job(0, 1)], BANK, 0)
    assert order.params.tolist() == [[2, 2]]


def test_several_jobs_of_one_client_are_one_order() -> None:
    told = {"bank": {"word": np.array([[7], [7], [5]], dtype=np.float32)}}
    first, second = orders_for([Job(3, 1, 0.5), Job(3, 0), Job(1, 0)], BANK, 0, told)
    assert (first.client, second.client) == (1, 3)
    assert (second.models.tolist(), second.paces.tolist()) == ([0, 1], [1, 0.5])
    assert second.params.tolist() == [[1, 1], [2, 2]]
    assert (first.told["bank"]["word"].tolist(), second.told["bank"]["word"].tolist()) == ([5], [7])
