"""True drifts of clients, for metrics."""

from types import SimpleNamespace

import numpy as np
import pytest

from engine.drifting_world import FakeWorld
from thalweg.engine.plan import make_plan
from thalweg.engine.true_drifts import TrueDrifts

# Three clients: two drift in round 4 (counted from 0), all in round 6.
WORLD = FakeWorld({0: [0, 0, 0], 4: [0, 1, 1], 6: [1, 0, 2]})


def drifts(world=WORLD, clock=None):
    return TrueDrifts(SimpleNamespace(world=world, clock=clock or (lambda rnd: rnd)))


def test_a_row_counts_the_clients_that_drifted_in_the_round():
    found = drifts()
    rows = [found.make_row(found.clock(done), found.clock(done + 1)) for done in range(8)]
    assert rows == [{}, {}, {}, {}, {"drifted": 2}, {}, {"drifted": 3}, {}]


def test_a_client_that_is_frozen_while_absent_drifts_by_its_own_clock():
    stream_rounds = {4: np.array([3, 3, 3]), 5: np.array([3, 4, 3]), 6: np.array([3, 4, 6])}
    found = drifts(
        FakeWorld(WORLD.plan, collects_when_absent=False), lambda rnd: stream_rounds[rnd]
    )
    assert found.make_row(found.clock(5), found.clock(6)) == {"drifted": 1}, (
        "client 1, in its round 4"
    )
    assert found.make_row(found.clock(6), found.clock(7)) == {"drifted": 1}, (
        "client 2, twice at once"
    )
    assert found.make_row(found.clock(7), found.clock(7)) == {}


def test_rows_by_name_list_clients_and_kinds_of_drift():
    found = TrueDrifts(SimpleNamespace(world=WORLD, clock=lambda rnd: rnd), by_name=True)
    rows = [found.make_row(found.clock(done), found.clock(done + 1)) for done in (4, 6)]
    assert [row["drifted"] for row in rows] == [2, 3]
    assert rows[0]["drifts"] == {"real": [1, 2]}
    assert sorted(set().union(*rows[1]["drifts"].values())) == [0, 1, 2]


def test_clocks_of_frozen_clients_on_a_network_are_unknown():
    for collects, states, known in [
        (True, {}, True),
        (False, {0: "here"}, True),
        (False, {}, False),
    ]:
        world = FakeWorld(WORLD.plan, collects_when_absent=collects)
        assert TrueDrifts(SimpleNamespace(world=world, states=states)).is_known == known
    assert not TrueDrifts(SimpleNamespace(world=object(), states={})).is_known


def test_a_world_without_views_has_empty_rows():
    found = drifts(SimpleNamespace(num_clients=3, collects_when_absent=True))
    assert found.make_row(found.clock(1), found.clock(2)) == {}


@pytest.mark.parametrize(
    ("every", "shown"), [(1, [4, 6, 8]), (2, [4, 6, 8]), (3, [3, 6, 8]), (4, [4, 8])]
)
def test_tasks_are_evaluated_before_a_drift_and_at_the_end(every, shown):
    overrides = ["tasks=true", f"evaluate_every={every}"]
    scenario = make_plan("fedavg", "digits-full", rounds=8, overrides=overrides).scenario
    looks = [done for done in range(1, 9) if done % every == 0 or done == 8]
    assert [done for done in looks if drifts().needs_tasks(scenario, done)] == shown


def test_tasks_are_not_evaluated_by_default():
    scenario = make_plan("fedavg", "digits-full", rounds=8).scenario
    assert not any(drifts().needs_tasks(scenario, done) for done in range(1, 9))
