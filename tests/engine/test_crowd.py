from __future__ import annotations

import numpy as np

from thalweg.core.types import Job
from thalweg.engine.crowd import Crowd
from thalweg.engine.loop import crowd_of
from thalweg.engine.plan import make_plan


def crowd() -> Crowd:
    plan = make_plan("fedogd", "digits-partial", seed=1, overrides=["capacity=8"])
    data = plan.scenario.data.load(None, 1)
    return crowd_of(plan, data, 10)


def test_a_client_that_never_took_part_is_as_it_is_born() -> None:
    everybody = crowd()
    assert np.array_equal(everybody.state(3).rows, everybody.clients.newborn(3).rows)
    assert everybody.states == {}, "looking changes nothing"


def test_only_clients_whose_state_is_another_one_have_changed() -> None:
    everybody = crowd()
    state = everybody.state(3)
    everybody.keep(3, state)
    assert everybody.changed == {3}
    everybody.changed.clear()
    everybody.keep(3, everybody.state(3))
    assert everybody.changed == set()
    visit = everybody.enter(Job(3), 0)
    everybody.leave(visit)
    assert everybody.changed == {3}
    assert everybody.state(3).lived == 1
