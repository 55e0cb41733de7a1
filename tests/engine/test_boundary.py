"""Every recipe gives the same bits if its clients are reached through bytes alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest

from contracts.checkpoint import to_comparable
from contracts.slow_cases import mark_slow_except
from engine.bytes_federation import BytesFederation, Fate, deliver_all, load
from engine.test_every_recipe import COMBINED, ODD, SMALL, world_for
from thalweg.core.capabilities import Broadcast
from thalweg.core.errors import Diverged
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats32, Ints, Job, SurveyResponses, Updates
from thalweg.engine.builders import make_federation, make_model_factory
from thalweg.engine.plan import Plan, make_plan
from thalweg.federation import (
    ServerState,
    SurveyRequest,
    SurveyStage,
    TrainRequest,
    TrainResponse,
    build_updates,
    new_server,
    run_server_round,
    split_updates,
)
from thalweg.recipes import RECIPES

MANY = ["world.availability=0.6"]  # several clients in most rounds


def plan_of(recipe: str, overrides: Sequence[str] = (), scenario: str = "digits-partial") -> Plan:
    return make_plan(recipe, scenario, seed=2, engine="reference", overrides=overrides)


def bytes_federation(plan: Plan, fate: Fate = deliver_all) -> BytesFederation:
    return BytesFederation(plan, load(plan.scenario.data, plan.seed), fate)


def reference(plan: Plan) -> Any:
    data = load(plan.scenario.data, plan.seed)
    net = plan.scenario.net.build(data.input_shape, data.num_classes)
    return make_federation(plan, data, net, workers=1)


def play(plan: Plan, federation: Any, rounds: int = 3) -> tuple[ServerState, list[Updates | None]]:
    data = load(plan.scenario.data, plan.seed)
    net = plan.scenario.net.build(data.input_shape, data.num_classes)
    num_clients = len(federation.roster(0).availability)
    start, draw_model = net.init(rng_for(plan.seed, Draw.NET)), make_model_factory(plan, net)
    server = new_server(plan.recipe, start, num_clients, num_classes=data.num_classes)
    history = []
    for _ in range(rounds):
        server, updates = run_server_round(server, federation, plan.recipe, plan.seed, draw_model)
        history.append(updates)
    return server, history


def check_same(plan: Plan, ours: Any, theirs: Any, rounds: int = 3) -> list[Updates | None]:
    """Models, all that the server remembers, every update and every metric: to the bit."""
    server, history = play(plan, ours, rounds)
    expected, expected_history = play(plan, theirs, rounds)
    assert to_comparable(server) == to_comparable(expected)
    for updates, others in zip(history, expected_history, strict=True):
        assert to_comparable(updates and vars(updates)) == to_comparable(others and vars(others))
    return history


def check_crosses(plan: Plan, rounds: int = 3) -> None:
    ours, theirs = bytes_federation(plan), reference(plan)
    history = check_same(plan, ours, theirs, rounds)
    assert any(updates is not None and len(updates) > 1 for updates in history)
    for client, state in theirs.client_pool.states.items():
        assert to_comparable(ours.state(client)) == to_comparable(state), (
            f"client {client} remembers something else"
        )
    assert ours.rejected == []


@pytest.mark.parametrize("recipe", [*RECIPES, *COMBINED])
def test_every_recipe_crosses_the_boundary(recipe: str) -> None:
    scenario, overrides = world_for(recipe)
    more = MANY if scenario == "digits-partial" else []
    check_crosses(plan_of(recipe, [*overrides, *more], scenario))


@pytest.mark.parametrize("case", ODD)
def test_odd_cases_cross_the_boundary(case: str) -> None:
    recipe, overrides = ODD[case]
    check_crosses(plan_of(recipe, [*SMALL, *MANY, *overrides]), rounds=4)


@pytest.mark.parametrize("recipe", ["sfedpo", "powd", "fedcurv", "stream-ours"])
@pytest.mark.parametrize(
    "sessions",
    [
        ["sessions=alternating", "sessions.length=2"],
        ["sessions=random-churn", "sessions.join=0.5", "sessions.leave=0.5"],
    ],
    ids=str,
)
def test_sessions_cross_the_boundary(recipe: str, sessions: list[str]) -> None:
    scenario, overrides = world_for(recipe)
    more = [*(MANY if scenario == "digits-partial" else []), *sessions]
    if recipe == "powd":  # else it takes a single one
        more.append("selection.participation=0.8")
    check_crosses(plan_of(recipe, [*overrides, *more], scenario), rounds=5)


# --- not everything arrives ---


class WithoutReply:
    """The reference engine, where one client is not heard in one round, whatever it did."""

    def __init__(self, plan: Plan, rnd: int, client: int) -> None:
        self._inner, self._when, self._who = reference(plan), rnd, client
        self.roster = self._inner.roster

    def survey(
        self, clients: Ints, stage: SurveyStage, bank: Floats32, rnd: int
    ) -> SurveyResponses:
        return cast(SurveyResponses, self._inner.survey(clients, stage, bank, rnd))

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        updates: Updates = self._inner.train(jobs, bank, rnd, broadcast)
        return updates.only((updates.clients != self._who) | (rnd != self._when))


def fate_of(rnd: int, client: int, what: str, kind: type = TrainRequest) -> Fate:
    """One message has this fate, all others arrive."""

    def fate(message: TrainRequest | SurveyRequest) -> str:
        is_it = isinstance(message, kind) and (message.rnd, message.client) == (rnd, client)
        return what if is_it else "arrives"

    return fate


def somebody_in_round(plan: Plan, rnd: int) -> int:
    _, history = play(plan, reference(plan), rnd + 1)
    updates = history[rnd]
    assert updates is not None
    assert len(updates) > 1
    return int(updates.clients[-1])


@pytest.mark.parametrize(
    "recipe",
    [
        *mark_slow_except(
            RECIPES, "sfedpo", "fedcurv", "scaffold", "stream-ours", "powd", "feddaa"
        ),
        "sfedpo+dpcs",
        "feddrift+is+fedcurv",
    ],
)
def test_who_is_not_heard_has_no_say_and_the_run_goes_on(recipe: str) -> None:
    scenario, overrides = world_for(recipe)
    more = MANY if scenario == "digits-partial" else []
    plan = plan_of(recipe, [*overrides, *more], scenario)
    victim = somebody_in_round(plan, 1)
    expected, _ = play(plan, WithoutReply(plan, 1, victim))
    for fate in ("dropped", "late"):
        ours = bytes_federation(plan, fate_of(1, victim, fate))
        server, history = play(plan, ours)
        assert to_comparable(server) == to_comparable(expected), fate
        assert [u.extra_metrics.get("missing") for u in history if u is not None][1] == 1


class Belated(WithoutReply):
    """The same, and what was not heard then comes with the replies of the next round."""

    def __init__(self, plan: Plan, rnd: int, client: int) -> None:
        super().__init__(plan, rnd, client)
        self._late: list[TrainResponse] = []

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        late, self._late = self._late, []
        replies = split_updates(self._inner.train(jobs, bank, rnd, broadcast), rnd)
        if rnd == self._when:
            self._late = [reply for reply in replies if reply.client == self._who]
            replies = [reply for reply in replies if reply.client != self._who]
        return build_updates([*replies, *late], bank.shape[1], rnd)


@pytest.mark.parametrize(
    ("recipe", "staleness"),
    [
        ("sfedpo", "staleness=polynomial"),
        ("fedcurv", "staleness=constant"),
        ("ode", "staleness=hinge staleness.after=0"),
        ("powd", "staleness=constant staleness.share=0.5"),  # it comes with the answers
        ("dpcs", "staleness=polynomial staleness.max_staleness=1"),
        ("flash", "staleness=polynomial"),
        ("scaffold", "staleness=polynomial"),
        ("stream-ours", "staleness=polynomial"),
    ],
)
def test_who_is_heard_late_counts_less_over_bytes_too(recipe: str, staleness: str) -> None:
    scenario, overrides = world_for(recipe)
    more = MANY if scenario == "digits-partial" else []
    plan = plan_of(recipe, [*overrides, *more, *staleness.split()], scenario)
    victim = somebody_in_round(plan, 1)
    ours = bytes_federation(plan, fate_of(1, victim, "late"))
    history = check_same(plan, ours, Belated(plan, 1, victim))
    extra_metrics = [{} if updates is None else updates.extra_metrics for updates in history]
    assert extra_metrics[1]["missing"] == 1
    assert (extra_metrics[2]["late"], extra_metrics[2]["mean_staleness"]) == (1, 1.0)
    assert "rejected" not in extra_metrics[2]


@pytest.mark.parametrize("fate", ["twice", "damaged", "stolen"])
def test_what_cannot_be_used_is_refused_and_counted(fate: str) -> None:
    plan = plan_of("sfedpo", [*SMALL, *MANY])
    victim = somebody_in_round(plan, 1)
    heard = reference(plan) if fate == "twice" else WithoutReply(plan, 1, victim)
    expected, _ = play(plan, heard)
    server, history = play(plan, bytes_federation(plan, fate_of(1, victim, fate)))
    assert to_comparable(server) == to_comparable(expected)
    extra_metrics = [{} if updates is None else updates.extra_metrics for updates in history]
    assert extra_metrics[1].get("rejected") == 1
    assert extra_metrics[2].get("rejected") is None


def test_a_client_that_never_got_its_order_has_not_moved() -> None:
    plan = plan_of("fedavg", [*SMALL, *MANY])
    victim = somebody_in_round(plan, 0)
    ours = bytes_federation(plan, lambda message: "lost" if message.client == victim else "arrives")
    play(plan, ours, rounds=1)
    assert to_comparable(ours.state(victim)) == to_comparable(ours.nodes[victim].node.new_client())
    dropped = bytes_federation(plan, fate_of(0, victim, "dropped"))
    play(plan, dropped, rounds=1)
    assert dropped.state(victim).lived == 1, "this one trained, but was not heard"


@pytest.mark.parametrize(
    "recipe", ["sfedpo", "fedcurv", "ode", "feddrift", "dpcs", "powd", "flash"]
)
def test_a_round_in_which_nobody_is_heard_changes_no_model(recipe: str) -> None:
    plan = plan_of(recipe, [*SMALL, *MANY])
    before, _ = play(plan, bytes_federation(plan), rounds=1)
    ours = bytes_federation(plan, lambda message: "dropped" if message.rnd == 1 else "arrives")
    server, history = play(plan, ours, rounds=2)
    assert server.bank.tobytes() == before.bank.tobytes()
    assert to_comparable(server.half_states) == to_comparable(before.half_states)
    assert server.rnd == 2
    updates = history[1]
    assert updates is not None
    assert len(updates) == 0
    assert updates.extra_metrics["missing"] >= 1
    assert updates.bytes_down > 0, "orders were sent all the same"
    _, updates = run_server_round(server, ours, plan.recipe, plan.seed)
    assert updates is not None
    assert len(updates) >= 1, "the next round is like any other"


class WithoutAnswer(WithoutReply):
    """The same for an answer: the row of one client is nan."""

    def survey(
        self, clients: Ints, stage: SurveyStage, bank: Floats32, rnd: int
    ) -> SurveyResponses:
        answers = super().survey(clients, stage, bank, rnd)
        silent = (clients == self._who) & (rnd == self._when)
        return {name: np.where(silent[:, None], np.nan, rows) for name, rows in answers.items()}

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        return cast(Updates, self._inner.train(jobs, bank, rnd, broadcast))


@pytest.mark.parametrize("recipe", ["dpcs", "powd", "feddrift"])
def test_a_question_that_is_not_answered_is_a_row_of_nan(recipe: str) -> None:
    plan = plan_of(recipe, [*SMALL, *MANY])
    victim = somebody_in_round(plan, 1)
    expected, _ = play(plan, WithoutAnswer(plan, 1, victim))
    ours = bytes_federation(plan, fate_of(1, victim, "dropped", SurveyRequest))
    assert to_comparable(play(plan, ours)[0]) == to_comparable(expected)


def test_if_everybody_diverges_the_run_stops() -> None:
    plan = plan_of("fedogd", [*SMALL, *MANY, "local.lr=1e30"])
    with pytest.raises(
        Diverged, match=r"TrainResponse: (losses|deltas) is not finite\. Try a smaller"
    ):
        play(plan, bytes_federation(plan))
