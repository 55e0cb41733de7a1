from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats32, Ints, Job, Updates
from thalweg.engine.builders import make_client_pool
from thalweg.engine.client_pool import ClientPool
from thalweg.engine.plan import make_plan
from thalweg.engine.reference import ReferenceFederation
from thalweg.engine.single import SingleTrainer
from thalweg.federation import ServerState, new_server, run_server_round
from thalweg.streams import Timetable, World


def client_pool() -> ClientPool:
    plan = make_plan("fedogd", "digits-partial", seed=1, overrides=["capacity=8"])
    data = plan.scenario.data.load(None, 1)
    return make_client_pool(plan, data, 10)


def test_a_client_that_never_took_part_has_the_state_of_a_new_client() -> None:
    pool = client_pool()
    assert np.array_equal(pool.state(3).rows, pool.clients.new_client(3).rows)
    assert pool.states == {}, "reading does not change the pool"


def test_a_client_is_changed_if_its_state_is_another_object() -> None:
    pool = client_pool()
    state = pool.state(3)
    pool.set_state(3, state)
    assert pool.changed == {3}
    pool.changed.clear()
    pool.set_state(3, pool.state(3))
    assert pool.changed == set()
    client_round = pool.start_round([Job(3)], 0)
    pool.finish(client_round)
    assert pool.changed == {3}
    assert pool.state(3).stream_round == 1


def test_clients_that_are_frozen_while_absent_have_clocks_of_their_own() -> None:
    pool = client_pool()
    pool.finish(pool.start_round([Job(3)], 0))
    pool.finish(pool.start_round([Job(3)], 4))
    for is_over, clock in ((True, 1), (False, 2)):
        found = np.broadcast_to(pool.clock(4, is_over), pool.world.num_clients)
        assert found[3] == clock
        assert found.sum() == clock, "the others have not started"


def test_clients_that_collect_while_absent_share_the_clock_of_the_run() -> None:
    plan = make_plan("fedogd", "drift-digits", seed=1)
    pool = make_client_pool(plan, plan.scenario.data.load(None, 1), 10)
    assert pool.clock(4) == pool.clock(4, is_over=False) == 4


# --- true concepts ---


class Changing:
    """A world whose clients have concept 1 from their second round on."""

    views = ()

    def __init__(self, world: World, collects: bool) -> None:
        self._world, self.collects_when_absent = world, collects

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def concepts_at(self, rnd: int | Ints) -> Ints:
        return (np.zeros(self._world.num_clients, dtype=np.int64) + rnd > 0).astype(np.int64)

    views_at, drift_events = concepts_at, list


def test_a_world_without_views_has_one_concept() -> None:
    concepts = client_pool().true_concepts(5)
    assert set(concepts.tolist()) == {0}


@pytest.mark.parametrize("collects", [True, False])
def test_concepts_follow_the_clock_of_the_streams(collects: bool) -> None:
    pool = client_pool()
    pool.world = Changing(pool.world, collects)  # type: ignore[assignment]
    pool.set_state(3, pool.state(3)._replace(stream_round=1))
    concepts = pool.true_concepts(1)
    assert concepts[3] == 1
    assert concepts[4] == collects


# --- who joins in the middle of a session ---


def joining(tolerance: float) -> tuple[list[ServerState], list[Updates], list[list[Job]]]:
    """Clients 0 to 2 are here from the start, client 3 from the second round on."""
    small = ["capacity=8", "ticks=1", "world.num_clients=4", "world.availability=1.0"]
    plan = make_plan("fedavg", "digits-partial", seed=1, overrides=small)
    data = plan.scenario.data.load(None, 1)
    net = plan.scenario.net.build(data.input_shape, data.num_classes)
    first, after = np.array([0, 0, 0, 1]), np.array([3, 3, 3, 3])
    timetable = Timetable(4, 3, np.arange(4), first, after, tolerance)
    here = make_client_pool(plan, data, net.num_params)
    pool = ClientPool(here.clients, here.world, timetable)
    federation = ReferenceFederation(pool, SingleTrainer.from_plan(plan, net, data), 0)
    asked: list[list[Job]] = []
    train = federation.train

    def noting(jobs: Sequence[Job], bank: Floats32, *rest: Any) -> Updates:
        asked.append(list(jobs))
        assert bank.tobytes() == servers[-1].bank.tobytes(), "the model as it is now"
        return train(jobs, bank, *rest)

    federation.train = noting  # type: ignore[method-assign, assignment]
    servers = [new_server(plan.recipe, net.init(rng_for(1, Draw.NET)), 4)]
    history: list[Updates] = []
    for _ in range(2):
        server, updates = run_server_round(servers[-1], federation, plan.recipe, seed=1)
        assert updates is not None
        servers.append(server)
        history.append(updates)
    return servers, history, asked


@pytest.mark.parametrize(("tolerance", "sessions"), [(0.5, [-1, 0, 0]), (0.0, [-1, 0, 1])])
def test_a_client_that_joins_during_a_session_gets_the_current_model_and_counts(
    tolerance: float, sessions: list[int]
) -> None:
    servers, history, asked = joining(tolerance)
    assert [server.session for server in servers] == sessions
    assert [updates.clients.tolist() for updates in history] == [[0, 1, 2], [0, 1, 2, 3]]
    is_same_session = sessions[-1] == 0
    assert {(job.session, job.age) for job in asked[1]} == {(0, 1) if is_same_session else (1, 0)}
    moved = servers[2].bank[0] - servers[1].bank[0]
    np.testing.assert_allclose(moved, history[1].deltas.mean(0), atol=1e-6)
    assert np.abs(history[1].deltas[3]).max() > 0, "the new client has been trained"
    assert servers[2].times_present.tolist() == [2, 2, 2, 1]
