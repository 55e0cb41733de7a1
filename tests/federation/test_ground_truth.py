"""Policies see ground truth only if they declare that they use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from contracts.examples import some_roster, some_updates
from contracts.model_probes import FakeModelProbe
from federation.scripted_stream import FixedForecast, RecordingMemory, clients, recipe, run_round
from thalweg.bank import BankAssignment, FedDaa, OneModel, Oracle
from thalweg.core.capabilities import Broadcast
from thalweg.core.errors import ConfigError
from thalweg.core.types import (
    Floats,
    Floats32,
    Ints,
    Job,
    OracleRoster,
    Roster,
    SurveyResponses,
    Updates,
)
from thalweg.engine.builders import make_client_pool
from thalweg.engine.plan import make_plan
from thalweg.federation import ClientContext, new_server, run_server_round, start_round
from thalweg.forecast import Bayesian, Exact, Growing, Noisy
from thalweg.local import Elastic, TwoTeachers
from thalweg.memory import Dds, Fifo, Replace
from thalweg.recipes import Recipe
from thalweg.selection import Available

CONCEPTS = [2, 5, 2]


@dataclass
class SimulatedClients:
    """Three clients with known concepts, which send updates of ones."""

    def roster(self, rnd: int) -> Roster:
        return some_roster([0, 1, 2], 3, rnd=rnd)

    def true_concepts(self, rnd: int) -> Ints:
        return np.array(CONCEPTS)

    def survey(self, clients: Ints, stage: str, bank: Floats32, rnd: int) -> SurveyResponses:
        return {}

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        who = [job.client for job in jobs]
        updates = some_updates(who, 2, deltas=np.ones((len(who), 2)).tolist())
        return replace(updates, models=np.array([job.model for job in jobs]))


class RemoteClients:
    """The same clients on a network, which does not know concepts."""

    def __init__(self) -> None:
        inner = SimulatedClients()
        self.roster, self.survey, self.train = inner.roster, inner.survey, inner.train


@dataclass(frozen=True)
class RecordingSelection:
    rosters: list[Roster] = field(default_factory=list)

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        self.rosters.append(roster)
        return Available().choose(roster, rng)


@dataclass(frozen=True)
class OracleSelection(RecordingSelection):
    is_oracle: ClassVar[bool] = True


@dataclass(frozen=True)
class RecordingWeights:
    rosters: list[Roster] = field(default_factory=list)

    def weigh(self, updates: Updates, roster: Roster) -> Floats:
        self.rosters.append(roster)
        return np.full(len(updates), 1 / len(updates))


@dataclass(frozen=True)
class RecordingBank(OneModel):
    rosters: list[Roster] = field(default_factory=list)

    def assign(
        self, state: None, roster: Roster, responses: SurveyResponses, num_models: int
    ) -> BankAssignment:
        self.rosters.append(roster)
        return super().assign(state, roster, responses, num_models)


def run_one_round(recipe: Recipe, federation: Any) -> None:
    server = new_server(recipe, np.zeros(2, dtype=np.float32), 3)
    run_server_round(server, federation, recipe, 0, lambda n: np.zeros(2, dtype=np.float32))


def test_custom_policies_cannot_see_the_true_concepts() -> None:
    selection, weights, bank = RecordingSelection(), RecordingWeights(), RecordingBank()
    mine = Recipe("mine", Replace(), selection=selection, weights=weights, bank=bank)
    run_one_round(mine, SimulatedClients())
    rosters = [*selection.rosters, *weights.rosters, *bank.rosters]
    assert len(rosters) == 3
    assert not any(hasattr(roster, "concepts") for roster in rosters)


def test_an_oracle_sees_the_true_concepts_of_a_simulation() -> None:
    selection = OracleSelection()
    run_one_round(Recipe("mine", Replace(), selection=selection), SimulatedClients())
    roster = selection.rosters[0]
    assert isinstance(roster, OracleRoster)
    assert roster.concepts is not None
    assert roster.concepts.tolist() == CONCEPTS


def test_an_oracle_sees_no_concepts_on_a_network() -> None:
    selection = OracleSelection()
    run_one_round(Recipe("mine", Replace(), selection=selection), RemoteClients())
    roster = selection.rosters[0]
    assert isinstance(roster, OracleRoster)
    assert roster.concepts is None


def test_the_oracle_bank_runs_in_simulations_only() -> None:
    mine = Recipe("mine", Fifo(), bank=Oracle())
    run_one_round(mine, SimulatedClients())
    with pytest.raises(ConfigError, match="bank=oracle needs the true concept"):
        run_one_round(mine, RemoteClients())


def test_feddaa_uses_no_ground_truth() -> None:
    bank, roster = FedDaa(), replace(some_roster([0, 1, 2], 3, rnd=0), cohort=np.arange(3))
    assert not bank.is_oracle
    with_truth = OracleRoster(**vars(roster), concepts=np.array(CONCEPTS))
    state = bank.assign(bank.init(3, 2), with_truth, {}, 1).state
    assert state.concepts.tolist() == [-1] * 3
    assert "scores" not in state._fields


@dataclass(frozen=True)
class BlindForecast(FixedForecast):
    """A forecast that does not declare the use of true states; records what it receives."""

    uses_true_states: ClassVar[bool] = False
    received: list[list[float]] = field(default_factory=list)

    def init(self, truth: Floats, rng: np.random.Generator) -> None:
        self.received.append(truth.tolist())

    def observe(self, state: None, states_seen: Ints) -> None:
        self.received.append(states_seen.tolist())


@dataclass(frozen=True)
class BlindMemory(RecordingMemory):
    """A memory that does not declare the use of the forecast."""

    uses_forecast: ClassVar[bool] = False


@pytest.mark.parametrize(
    ("memory", "forecast", "expected"),
    [
        (RecordingMemory, FixedForecast, [0, 1, 2]),
        (BlindMemory, FixedForecast, [-1, -1, -1]),
        (RecordingMemory, BlindForecast, [-1, -1, -1]),
    ],
)
def test_a_memory_sees_true_states_only_if_it_and_the_forecast_declare_it(
    memory: Any, forecast: Any, expected: list[int]
) -> None:
    policy = memory()
    who = clients(recipe(policy, forecast=forecast()))
    run_round(start_round(ClientContext(who, 0, 0), who.new_client(0)))
    assert [context.state for context in policy.recorded] == expected


def test_a_forecast_without_declaration_receives_neither_probabilities_nor_states() -> None:
    forecast = BlindForecast()
    who = clients(recipe(Fifo(), forecast=forecast))
    client_round = start_round(ClientContext(who, 0, 0), who.new_client(0))
    run_round(client_round)
    client_round.finish()
    assert np.isnan(forecast.received[0]).all()
    assert forecast.received[1] == [-1, -1, -1]


@dataclass(frozen=True)
class RecordingObjective(Elastic):
    """An objective that records whether it receives state changes."""

    changes: list[bool] = field(default_factory=list)

    def start_tick(self, state: Any, probe: Any, rows: Ints, changed: bool) -> Any:
        self.changes.append(changed)
        return state


@dataclass(frozen=True)
class BlindObjective(RecordingObjective):
    uses_true_states: ClassVar[bool] = False


@pytest.mark.parametrize(
    ("objective", "expected"),
    [(RecordingObjective, [False, True, True]), (BlindObjective, [False, False, False])],
)
def test_an_objective_is_told_of_state_changes_only_if_it_declares_it(
    objective: Any, expected: list[bool]
) -> None:
    policy = objective()
    who = clients(recipe(Fifo(), objective=policy))
    ctx = ClientContext(who, 0, 0, [FakeModelProbe([0.0])])
    run_round(start_round(ctx, who.new_client(0)))
    assert policy.changes == expected


def test_a_recipe_lists_the_ground_truth_that_it_uses() -> None:
    assert Recipe("mine", Fifo()).ground_truth == ()
    for bank in (Oracle(), FedDaa(drift_flags="oracle")):
        assert Recipe("mine", Fifo(), bank=bank).ground_truth == ("bank: true concepts",)
    assert Recipe("mine", Fifo(), bank=FedDaa()).ground_truth == ()
    for forecast in (Exact(), Noisy(), Bayesian()):
        assert Recipe("mine", Dds(), forecast=forecast).ground_truth == ("forecast: true states",)
    assert Recipe("mine", Dds(), forecast=Growing()).ground_truth == ()
    for objective in (Elastic(), TwoTeachers()):
        changes = ("objective: true state changes",)
        assert Recipe("mine", Fifo(), objective=objective).ground_truth == changes
        assert Recipe("mine", Fifo(), objective=objective, forecast=Growing()).ground_truth == ()


def test_undeclared_memory_receives_a_uniform_outlook() -> None:
    """A forecast with true states is visible only to policies that declare ``uses_forecast``."""
    plan = make_plan("fedavg", "digits-partial", seed=0)
    data = plan.scenario.data.load(None, 0)
    program = make_client_pool(plan, data, 1).clients
    outlook = program.forecast.outlook(
        program.new_client(0).forecast,
        program.stream.state_table.histograms,
        program.stream.state_table.importance,
    )
    hidden = program.hide_outlook(outlook, program.recipe.memory)
    assert np.ptp(hidden.probs) == 0
    assert hidden.variance is None
    assert hidden.deviations is None
    assert not hidden.heterogeneity.any()
    assert len(hidden.probs) == len(outlook.probs)
    assert program.hide_outlook(outlook, program.recipe.memory) is hidden, "computed once"
    assert not any(values.flags.writeable for values in hidden[:3]), "shared, so read-only"
    assert program.hide_outlook(outlook, Dds()) is outlook
