"""Sessions in runs: whoever is no member is not here, and comes back as it left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.checkpoint import plain
from contracts.runs import Enough, check_engines_agree, check_same_bits, interrupt_after
from engine.bytes_federation import load
from thalweg.core.errors import ConfigError, DataError, RunError
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Ints
from thalweg.data import Digits, GaussianMixture, SyntheticLogistic
from thalweg.engine import folder as folder_module
from thalweg.engine.crowd import Crowd
from thalweg.engine.loop import Progress, Result, crowd_of, federation_of, run_plan
from thalweg.engine.plan import Plan, make_plan
from thalweg.local import Sgd
from thalweg.nets import Linear
from thalweg.recipes import fedavg
from thalweg.recipes.server import play_round
from thalweg.recipes.state import new_server
from thalweg.scenarios import Scenario
from thalweg.streams import Dirichlet, Groups, Inflow, LatentStates, Overlap, Replay, Timetable

SGD = Sgd(lr=0.05, batch_size=6, steps=1)
LATENT = LatentStates(
    num_clients=6, clusters=(0.1, 10.0), states_per_cluster=3, reachable=3, availability=1.0
)
WORLDS = {
    "latent-states": (Digits(), LATENT),
    "replay": (
        GaussianMixture(num_samples=110, num_test=40),
        Replay(num_clients=6, arrivals=3, availability=1.0),
    ),
    "inflow": (
        SyntheticLogistic(num_samples=220, num_test=44, num_features=5),
        Inflow(partition=Groups(), historical=6 / 11, capacity_of="own"),
    ),
}
TURNS = ("sessions=alternating", "sessions.length=2")


def plan_of(world: str = "latent-states", *overrides: str, rounds: int = 6, **more: Any) -> Plan:
    data, spec = WORLDS[world]
    scenario = Scenario(
        name=world, data=data, net=Linear(), world=spec, local=SGD, ticks=2, capacity=12
    )
    return make_plan(fedavg(), scenario, seed=3, rounds=rounds, overrides=overrides, **more)


def crowd(plan: Plan) -> Crowd:
    return crowd_of(plan, load(plan.scenario.data, plan.seed), 10)


def play(plan: Plan, **more: Any) -> Result:
    return run_plan(plan, workers=1, data=load(plan.scenario.data, plan.seed), **more)


def cohorts(plan: Plan) -> tuple[list[list[int]], list[dict[int, Any]]]:
    """Who trained in every round, and what everybody remembered after it."""
    data = load(plan.scenario.data, plan.seed)
    net = plan.scenario.net.build(data.input_shape, data.num_classes)
    federation = federation_of(plan, data, net, workers=1)
    num_clients = federation.crowd.clients.world.num_clients
    server = new_server(plan.recipe, net.init(rng_for(plan.seed, Draw.NET)), num_clients)
    trained, remembered = [], []
    for _ in range(plan.scenario.rounds):
        server, updates = play_round(server, federation, plan.recipe, plan.seed)
        trained.append([] if updates is None else updates.clients.tolist())
        remembered.append(dict(federation.crowd.states))
    federation.close()
    return trained, remembered


@pytest.mark.parametrize("world", WORLDS)
def test_only_members_train_whatever_the_world(world: str) -> None:
    plan = plan_of(world, *TURNS)
    num_clients = crowd(plan).clients.world.num_clients
    first, second = (block.tolist() for block in np.array_split(np.arange(num_clients), 2))
    trained, _ = cohorts(plan)
    assert trained == [first] * 2 + [second] * 2 + [first] * 2


def test_a_client_comes_back_with_what_it_remembered_when_it_left() -> None:
    _, remembered = cohorts(plan_of("latent-states", *TURNS))
    for client in (0, 1, 2):
        left, back = remembered[1][client], remembered[4][client]
        for rnd in (2, 3):
            assert remembered[rnd][client] is left, "nothing moves while it is away"
        assert left.lived == 2
        assert back.lived == 3
        assert set(back.rows) & set(left.rows), "half of the memory stays"


def test_in_a_world_that_collects_a_client_comes_back_with_all_that_came() -> None:
    plan = plan_of("replay", *TURNS, "world.absent=collecting", "memory=fifo")
    _, remembered = cohorts(plan)
    assert remembered[3][3].lived == 4, "it was away in the first two rounds"
    assert remembered[5][0].lived == 6
    always = cohorts(plan_of("replay", "world.absent=collecting", "memory=fifo"))[1]
    assert plain(remembered[5][0].rows) == plain(always[5][0].rows)


def test_availability_counts_inside_a_session() -> None:
    plan = plan_of("latent-states", *TURNS, "world.availability=0.5", rounds=8)
    everybody = crowd(plan)
    world, sizes = everybody.clients.world, []
    for rnd in range(8):
        roster = everybody.roster(rnd)
        assert roster.session is not None
        assert set(roster.here) == set(world.here(rnd)) & set(roster.session.members)
        assert len(roster.session.members) == 3, "who is away belongs to it all the same"
        sizes.append(len(roster.here))
    assert min(sizes) < 3
    assert roster.availability.tolist() == (0.5 * world.availability).tolist()


def test_the_roster_knows_how_much_clients_will_have_had() -> None:
    turns = crowd(plan_of("inflow", *TURNS, rounds=8))
    always = crowd(plan_of("inflow", rounds=8))
    ours, theirs = turns.roster(0).supplies, always.roster(0).supplies
    assert ours is not None
    assert theirs is not None
    old = theirs.is_historical
    assert ours.rounds.tolist() == (theirs.rounds / 2).tolist()
    assert ours.total[old].tolist() == theirs.total[old].tolist()
    assert ours.total[~old].tolist() == (theirs.total[~old] / 2).tolist()


def test_rounds_without_members_train_nobody_and_the_run_goes_on() -> None:
    plan = plan_of(
        "latent-states", "sessions=recurring", "sessions.pattern=-A-B", "sessions.length=1"
    )
    result = play(plan)
    assert [row["cohort"] for row in result.metrics] == [0, 3, 0, 3, 0, 3]
    sent = [row["bytes_up"] > 0 for row in result.metrics]
    assert sent == [False, True] * 3


def test_random_churn_is_the_same_on_both_engines_and_after_an_interruption(tmp_path: Path) -> None:
    churn = ("sessions=random-churn", "sessions.join=0.4", "sessions.leave=0.4")
    plan = plan_of("latent-states", *churn)
    whole = play(plan, out=tmp_path / "whole")
    assert len({row["cohort"] for row in whole.metrics}) > 2
    with pytest.raises(Enough):
        play(plan, out=tmp_path / "cut", watch=interrupt_after(3))
    check_same_bits(whole, play(plan, out=tmp_path / "cut", resume=True))
    check_engines_agree(whole, play(plan_of("latent-states", *churn, engine="reference")))


def test_a_sessions_members_may_all_be_without_data(tmp_path: Path) -> None:
    skewed = Inflow(num_clients=30, partition=Dirichlet(0.02), samples=40, historical=1.0)
    scenario = Scenario(name="skewed", data=Digits(), net=Linear(), world=skewed, local=SGD)
    everybody = crowd(make_plan(fedavg(), scenario, seed=3))
    world = everybody.clients.world
    without = [n for n in range(30) if world.supply(n).total == 0]
    others = [n for n in range(30) if n not in without][:5]
    assert len(without) > 2
    lines = (
        [f"{n},0,2" for n in others] + [f"{n},2,4" for n in without] + [f"{n},4," for n in others]
    )
    trace = tmp_path / "stays.csv"
    trace.write_text("\n".join(["client,join,leave", *lines]))
    overrides = ["sessions=trace", f"sessions.path={trace}", "evaluate_every=1"]
    plan = make_plan(fedavg(), scenario, seed=3, rounds=6, overrides=overrides)
    losses = [row["test_loss"] for row in play(plan).metrics]
    assert losses[1] == losses[2] == losses[3], "they were asked, and had nothing to learn from"
    assert losses[3] != losses[4]


def test_two_groups_with_all_their_data_from_the_start() -> None:
    for start in ({"historical": 1.0}, {}):
        overlap = Inflow(
            num_clients=8, partition=Overlap(0.2), capacity_of="own", absent="frozen", **start
        )
        scenario = Scenario(
            name="turns", data=Digits(), net=Linear(), world=overlap, local=SGD, ticks=1
        )
        more = [] if start else ["world.arrivals=at-start"]
        plan = make_plan(fedavg(), scenario, seed=3, rounds=4, overrides=[*TURNS, *more])
        everybody = crowd(plan)
        labels = load(Digits(), 3).y
        has = [set(labels[everybody.clients.newborn(client).rows].tolist()) for client in range(8)]
        assert set().union(*has[:4]) == {0, 1, 2, 3, 4}
        assert set().union(*has[4:]) == {4, 5, 6, 7, 8}
        _, remembered = cohorts(plan)
        for client in range(8):
            rows: Ints = remembered[-1][client].rows
            assert len(rows) == everybody.clients.world.supply(client).total, "all of it, always"


# --- refused ---


def test_a_bad_trace_is_refused_before_there_is_a_folder(tmp_path: Path) -> None:
    trace = tmp_path / "stays.csv"
    trace.write_text("client,join,leave\n99,0,4\n")
    plan = plan_of("latent-states", "sessions=trace", f"sessions.path={trace}")
    with pytest.raises(DataError, match="line 2: there is no client 99"):
        play(plan, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_does_not_go_on_with_another_trace(tmp_path: Path) -> None:
    trace = tmp_path / "stays.csv"
    trace.write_text("client,join,leave\n0,0,\n1,0,4\n")
    plan = plan_of("latent-states", "sessions=trace", f"sessions.path={trace}")
    with pytest.raises(Enough):
        play(plan, out=tmp_path / "run", watch=interrupt_after(2))
    trace.write_text("client,join,leave\n0,0,\n1,0,5\n")
    with pytest.raises(RunError, match="another trace of sessions"):
        play(plan, out=tmp_path / "run", resume=True)
    trace.write_text("client,join,leave\n1,0,2\n1,2,4\n0,0,\n")  # the same stays in other words
    assert len(play(plan, out=tmp_path / "run", resume=True).metrics) == 6


def test_a_schedule_of_the_users_own_must_be_for_all_clients(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "import numpy as np\n"
        "from thalweg.streams import Timetable\n"
        "@dataclass(frozen=True)\n"
        "class Early:\n"
        "    missing: int = 0\n"
        "    def timetable(self, num_clients, rounds, seed):\n"
        "        n = num_clients - self.missing\n"
        "        return Timetable(n, rounds, np.arange(n), np.zeros(n), np.full(n, 2))\n"
    )
    own = f"sessions={tmp_path}/mine.py:Early"
    trained, _ = cohorts(plan_of("latent-states", own))
    assert [len(cohort) for cohort in trained] == [6, 6, 0, 0, 0, 0]
    with pytest.raises(ConfigError, match="must be for 6 clients, got one for 5"):
        crowd(plan_of("latent-states", own, "sessions.missing=1"))


# --- how much is kept ---


def test_checkpoints_do_not_grow_with_the_number_of_past_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "SNAPSHOT_EVERY", 10)
    churn = ("sessions=random-churn", "sessions.join=0.3", "sessions.leave=0.3")
    plan = plan_of("latent-states", *churn, "evaluate_every=100", rounds=60)
    sizes: list[int] = []

    def watch(progress: Progress) -> None:
        if progress.rounds_done % 10 == 0:
            files = list((tmp_path / "run/checkpoint").iterdir())
            assert len(files) == 2, "the server, and all clients"
            sizes.append(sum(file.stat().st_size for file in files))

    play(plan, out=tmp_path / "run", watch=watch)
    assert len(sizes) == 6
    # By the twentieth round everybody has come; later only numbers get more digits.
    assert max(sizes) - sizes[1] < 200


def test_nothing_that_a_timetable_keeps_depends_on_which_rounds_were_asked_for() -> None:
    everybody = crowd(plan_of("latent-states", "sessions=random-churn", rounds=500))
    timetable = everybody.timetable
    assert isinstance(timetable, Timetable)
    everybody.roster(0)
    before = {name: plain(value) for name, value in vars(timetable).items()}
    for rnd in range(500):
        everybody.roster(rnd)
    assert {name: plain(value) for name, value in vars(timetable).items()} == before
    assert everybody.states == {}
