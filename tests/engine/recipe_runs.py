"""Runs of one plan that several tests compare, and federations that exchange bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from contracts.checkpoint import to_comparable
from contracts.runs import Interruption, interrupt_after
from engine.bytes_federation import BytesFederation, Fate, deliver_all, load
from thalweg.core.capabilities import Broadcast
from thalweg.core.rng import Draw, rng_for
from thalweg.core.trees import Tree
from thalweg.core.types import Floats32, Ints, Job, Roster, SurveyResponses, Updates
from thalweg.engine.builders import make_federation, make_model_factory
from thalweg.engine.loop import Result, run_plan
from thalweg.engine.metrics import AT_CLIENTS
from thalweg.engine.plan import Plan, make_plan
from thalweg.engine.run_folder import RunFolder
from thalweg.engine.simulated import FederationWrapper
from thalweg.federation import (
    ServerState,
    SurveyRequest,
    SurveyStage,
    TrainRequest,
    new_server,
    run_server_round,
)

SMALL = ["capacity=24", "local.passes=1", "ticks=3", "world.num_clients=8", "evaluate_every=1"]
# Recipes for stored data need a world that has some.
STORED = ["world.samples=110", "world.historical=0.7", "ticks=2", "evaluate_every=1"]
MANY = ["world.availability=0.6"]  # several clients in most rounds


# Session starts need sessions: here nearly every change of the present clients opens one.
OPENS_SESSIONS = [
    "session_trigger=presence",
    "session_trigger.tolerance=0.0",
    "session_trigger.risk=0.4",
]


def world_for(recipe: str) -> tuple[str, list[str]]:
    """Return a scenario and overrides that suit a recipe."""
    if recipe in ("warmstart", "average-start"):
        return "digits-partial", [*SMALL, *OPENS_SESSIONS]
    return ("streams-synthetic", STORED) if "stream-" in recipe else ("digits-partial", SMALL)


def small_plan(recipe: str, *overrides: str, rounds: int = 3) -> Plan:
    """Return a small plan of a recipe in which several clients take part in most rounds."""
    scenario, small = world_for(recipe)
    more = [*MANY, "ticks=2"] if scenario == "digits-partial" else []
    return make_plan(
        recipe,
        scenario,
        seed=2,
        rounds=rounds,
        engine="reference",
        overrides=[*small, *more, *overrides],
    )


def plan_of(recipe: str, overrides: Sequence[str] = (), scenario: str = "digits-partial") -> Plan:
    return make_plan(recipe, scenario, seed=2, engine="reference", overrides=overrides)


# In twelve rounds with five clients, auto raises alarms, opens sessions and a model, chooses the
# start of a session, and restarts averages.
ACTIVE_AUTO = [
    *("capacity=16", "local.passes=1", "ticks=2", "evaluate_every=5", "world.num_clients=5"),
    *("world.availability=0.8", "world.absent=collecting"),
    *("drift=sudden", "drift.at=6", "drift.share=0.5"),
    *("session_trigger.tolerance=0", "session_trigger.risk=0.4"),
    *("alarm.threshold=1", "alarm.slack=0", "alarm.recovery=0.5", "alarm.action.drop_margin=0"),
    *("bank.max_conflict=0.2", "bank.sufficient_loss=0.5", "bank.significance=1.0"),
]


def active_auto_plan(*overrides: str) -> Plan:
    """Return a small plan of auto in which all of its policies take decisions."""
    return make_plan(
        "auto",
        "digits-partial",
        seed=2,
        rounds=12,
        engine="reference",
        overrides=[*ACTIVE_AUTO, *overrides],
    )


class RecordedRun(NamedTuple):
    """A run with everything that the server received."""

    result: Result
    server: Tree  # the state in the last checkpoint
    updates: list[Updates]
    federation: Any


class RecordingFederation(FederationWrapper):
    """Keeps all updates of another federation."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.updates: list[Updates] = []

    def roster(self, rnd: int) -> Roster:
        return self.inner.roster(rnd)

    def survey(
        self, clients: Ints, stage: SurveyStage, bank: Floats32, rnd: int
    ) -> SurveyResponses:
        return self.inner.survey(clients, stage, bank, rnd)

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        self.updates.append(self.inner.train(jobs, bank, rnd, broadcast))
        return self.updates[-1]


class PlanRuns:
    """The runs of one plan. Each is computed when it is first needed, and only once."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self._folder = plan, folder
        self._data = load(plan.scenario.data, plan.seed)

    @cached_property
    def fast(self) -> Result:
        """On the fast engine."""
        return self._run_fast()

    @cached_property
    def resumed(self) -> Result:
        """On the fast engine, interrupted before the last round."""
        out = self._folder / "resumed"
        with pytest.raises(Interruption):
            self._run_fast(out=out, watch=interrupt_after(self.plan.scenario.rounds - 1))
        return self._run_fast(out=out, resume=True)

    @cached_property
    def reference(self) -> RecordedRun:
        """On the reference engine."""
        return self._record(lambda plan, data, net, pool: make_federation(plan, data, net, 1, pool))

    @cached_property
    def over_bytes(self) -> RecordedRun:
        """With clients that are reached by bytes."""
        return self._record(lambda plan, data, net, pool: BytesFederation(plan, self._data))

    def check_bytes_equal_reference(self) -> None:
        """Models, server state, updates, metrics and client states have the same bits."""
        ours, theirs = self.over_bytes, self.reference
        assert to_comparable(ours.server) == to_comparable(theirs.server)
        assert len(ours.updates) == len(theirs.updates)
        for updates, others in zip(ours.updates, theirs.updates, strict=True):
            assert to_comparable(vars(updates)) == to_comparable(vars(others))
        assert any(len(updates) > 1 for updates in ours.updates)
        for row, other in zip(ours.result.metrics, theirs.result.metrics, strict=True):
            # A server without the clients' states does not know how many states they have learned.
            unknown = {"seconds": 0, "core_seconds": 0, "forecast_states": 0}
            assert self._leave_out({**row, **unknown}) == self._leave_out({**other, **unknown})
        for client, state in theirs.federation.client_pool.states.items():
            assert to_comparable(ours.federation.state(client)) == to_comparable(state), client
        assert ours.federation.rejected == []

    def _leave_out(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row without what the server cannot measure if clients choose predictors."""
        if self.plan.recipe.serving is None:
            return row
        hidden = (*AT_CLIENTS, "serving_weights")
        return {name: value for name, value in row.items() if not name.startswith(hidden)}

    def _run_fast(self, **options: Any) -> Result:
        plan = replace(self.plan, engine="fast")
        return run_plan(plan, workers=1, data=self._data, **options)

    def _record(self, make: Any) -> RecordedRun:
        recording: list[RecordingFederation] = []

        def federate(*parts: Any) -> Any:
            recording.append(RecordingFederation(make(*parts)))
            return recording[0]

        out = self._folder / f"recorded-{len(list(self._folder.iterdir()))}"
        result = run_plan(self.plan, data=self._data, federate=federate, out=out)
        server = RunFolder(out).read_checkpoint()[0]["state"]
        return RecordedRun(result, server, recording[0].updates, recording[0].inner)


# --- rounds without a run: federations that lose messages, and policies of a single test ---


def bytes_federation(plan: Plan, fate: Fate = deliver_all) -> BytesFederation:
    return BytesFederation(plan, load(plan.scenario.data, plan.seed), fate)


def reference(plan: Plan) -> Any:
    data = load(plan.scenario.data, plan.seed)
    net = plan.scenario.net.build(data.input_shape, data.num_classes)
    return make_federation(plan, data, net, workers=1)


def play(plan: Plan, federation: Any, rounds: int = 3) -> tuple[ServerState, list[Updates | None]]:
    """Run some rounds; return the server and the validated updates of each round."""
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
    """Server state and updates of two federations have the same bits."""
    server, history = play(plan, ours, rounds)
    expected, expected_history = play(plan, theirs, rounds)
    assert to_comparable(server) == to_comparable(expected)
    for updates, others in zip(history, expected_history, strict=True):
        pair = [None if each is None else to_comparable(vars(each)) for each in (updates, others)]
        assert pair[0] == pair[1]
    return history


def check_crosses(plan: Plan, rounds: int = 3) -> None:
    """Clients that are reached by bytes give the same bits as those of the reference engine."""
    ours, theirs = bytes_federation(plan), reference(plan)
    history = check_same(plan, ours, theirs, rounds)
    assert any(updates is not None and len(updates) > 1 for updates in history)
    for client, state in theirs.client_pool.states.items():
        assert to_comparable(ours.state(client)) == to_comparable(state), client
    assert ours.rejected == []


def fate_of(rnd: int, client: int, what: str, kind: type = TrainRequest) -> Fate:
    """Return a fate of one message; all others arrive."""

    def fate(message: TrainRequest | SurveyRequest) -> str:
        is_it = isinstance(message, kind) and (message.rnd, message.client) == (rnd, client)
        return what if is_it else "arrives"

    return fate


def client_in_round(plan: Plan, rnd: int) -> int:
    """Return a client that trains in a round, with at least one other."""
    _, history = play(plan, reference(plan), rnd + 1)
    updates = history[rnd]
    assert updates is not None
    assert len(updates) > 1
    return int(updates.clients[-1])


class WithoutReply:
    """The reference engine, where the response of one client is lost in one round."""

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
