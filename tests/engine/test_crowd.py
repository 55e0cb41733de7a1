from __future__ import annotations

import numpy as np
import pytest

from thalweg.engine.crowd import Crowd, heard_by, side_by_side
from thalweg.engine.loop import clients_of
from thalweg.engine.plan import make_plan


def crowd(*overrides: str) -> tuple[Crowd, np.ndarray]:
    plan = make_plan("fedogd", "digits-partial", seed=1, overrides=["capacity=8", *overrides])
    data = plan.scenario.data.load(None, 1)
    return Crowd(clients_of(plan, data, 10)), data.y


@pytest.mark.parametrize("absent", ["frozen", "collecting"])
def test_the_newest_samples_are_those_of_the_first_tick_to_come(absent: str) -> None:
    everybody, _ = crowd(f"world.absent={absent}")
    before = everybody.newest(3, everybody.standing(3, 2)).tolist()
    visit = everybody.enter(3, 2)
    assert before == visit.arrivals[0].items.tolist()
    assert everybody.states == {}, "looking changes nothing"


def test_without_arrivals_the_newest_samples_are_the_held_ones() -> None:
    plan = make_plan(
        "fedogd", "gaussian-mixture", overrides=["world.at_end=silence", "world.arrivals=10000"]
    )
    data = plan.scenario.data.load(None, 0)
    everybody = Crowd(clients_of(plan, data, 10))
    for rnd in range(2):
        visit = everybody.enter(0, rnd)
        for _ in range(plan.scenario.ticks):
            visit.observe()
        everybody.leave(visit)
    state = everybody.standing(0, 2)
    assert everybody.newest(0, state).tolist() == everybody.states[0].rows.tolist()
    assert len(state.rows) > 0


def test_a_client_hears_its_own_row_of_every_message() -> None:
    told = {"memory": {"word": np.array([[1.0], [2.0]])}, "objective": {}}
    assert heard_by(told, 1) == {"memory": {"word": np.array([2.0])}, "objective": {}}
    assert heard_by(None, 0) == {}


def test_what_clients_say_becomes_one_matrix_and_silence_counts_as_zeros() -> None:
    words = [{"w": np.array([1, 2], dtype="f4")}, {"w": np.empty(0, dtype="f4")}]
    assert side_by_side(words)["w"].tolist() == [[1.0, 2.0], [0.0, 0.0]]
    assert side_by_side([{}, {}]) == {}
