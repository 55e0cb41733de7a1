"""Each policy fulfils the contract of its stage."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from contracts.alarm import check_alarm
from contracts.bank import check_bank
from contracts.forecast import check_forecast
from contracts.memory import check_memory_policy
from contracts.privacy import check_privacy
from contracts.robust import check_robust
from contracts.sample_weights import check_sample_weights
from contracts.selection import check_selection
from contracts.server_rule import check_server_rule
from contracts.serving import check_serving
from contracts.session_start import check_session_start
from contracts.session_trigger import check_session_trigger
from contracts.staleness import check_staleness
from contracts.stopping import check_stopping
from contracts.weights import check_weights
from contracts.world import LABELS, DriftingSpec, check_world
from thalweg import (
    aggregation,
    bank,
    drift,
    forecast,
    local,
    memory,
    sample_weights,
    selection,
    serving,
    sessions,
    streams,
)
from thalweg.core.capabilities import SurveyContext
from thalweg.core.types import (
    Floats,
    Floats32,
    Ints,
    MemoryContext,
    Roster,
    SurveyResponses,
    Updates,
)


def every(table: Mapping[str, Any], *variants: object) -> pytest.MarkDecorator:
    """Parametrize a test with the policies of a table, with defaults, and some variants."""
    return pytest.mark.parametrize(
        "policy", [*(policy() for policy in table.values()), *variants], ids=repr
    )


@every(
    streams.WORLDS,
    streams.LatentStates(access="full", stickiness=0.5, absent="collecting", arrivals=3),
    streams.LatentStates(state_data="label_prior", importance="frequency", num_clients=1),
    streams.Replay(at_end="stop", arrivals=50, availability=1.0),
    streams.Replay(num_clients=3, availability_spread=0.2),
    streams.Inflow(historical=0.5, historical_data=0.2, capacity_of="own"),
    streams.Inflow(historical=0.2, arrivals=streams.OneShot(), partition=streams.Even()),
    streams.Inflow(arrivals=streams.OneShot(width=3), absent="collecting", availability=0.5),
    streams.Inflow(arrivals=streams.Poisson(2.5), at_end="restart", rate_spread=0.5),
    streams.Inflow(arrivals=streams.Bursts(50), label_change=0.5, capacity_spread=1.0),
    streams.Inflow(
        arrivals=streams.Bursts(every=None, probability=0.3), availability_spread=0.2, samples=300
    ),
    streams.Inflow(arrivals=streams.AtStart(), partition=streams.Dirichlet(0.1, 0.8, min_size=1)),
    streams.Inflow(num_clients=1, arrivals=streams.ConstantRate(0.3), availability=0.3),
    streams.Inflow(num_clients=1200, partition=streams.Dirichlet(0.01)),
    streams.Inflow(num_clients=8, partition=streams.Overlap(0.6), historical=1.0),
    streams.Inflow(num_clients=8, partition=streams.PartialOverlap(), availability=0.7),
    streams.Inflow(num_clients=4, partition=streams.TwoShard(), arrivals=streams.AtStart()),
    streams.Inflow(num_clients=2, partition=streams.Distinct(), arrivals=streams.Poisson(3.0)),
    streams.Inflow(num_clients=6, partition=streams.Half(), capacity_of="own"),
    streams.Steps(num_clients=1, rounds_per_step=3),
    streams.Steps(num_clients=7, dirichlet=0.3, stay_probability=0.5, rounds_per_step=1),
    streams.Steps(num_clients=1200, concepts=((2,),), rotations=(30.0,), rounds_per_step=2000),
    DriftingSpec(streams.LatentStates(num_clients=4), streams.Sudden(at=2)),
    DriftingSpec(streams.Replay(num_clients=3), streams.Gradual(start=0, until=5, share=0.5)),
    DriftingSpec(streams.Inflow(num_clients=4, historical=0.5), streams.RecurringDrift(period=2)),
    DriftingSpec(
        streams.Replay(num_clients=5, absent="collecting"), streams.Staggered(at=0, lag=2)
    ),
    streams.LatentStates(dynamics=streams.PeriodicStates(period=7.0, length=0.1)),
    streams.LatentStates(
        dynamics=streams.SwitchingRegimes(regimes=4, stay=0.5), access="full", absent="collecting"
    ),
    streams.LatentStates(rotations=(0.0, 90.0), brightness=(0.5,), stickiness=0.5),
    streams.LatentStates(
        brightness=(0.2, 0.6), importance="frequency", dynamics=streams.PeriodicStates()
    ),
    DriftingSpec(streams.Replay(num_clients=2), streams.Incremental(degrees=50.0, every=1)),
    DriftingSpec(streams.Replay(num_clients=2), streams.DriftTable(lines=((0, 1, 1, 90.0),))),
)
def test_worlds_fulfil_their_contract(policy: Any) -> None:
    check_world(policy)


def test_worlds_on_data_with_groups_and_times_fulfil_their_contract() -> None:
    rng = np.random.default_rng(0)
    natural = streams.Inflow(partition=streams.Groups(), historical=0.5, historical_data=0.2)
    for spec in (streams.LatentStates(), streams.Replay(), natural):
        check_world(spec, client=rng.integers(0, 4, len(LABELS)), time=rng.normal(size=len(LABELS)))


def test_world_on_data_with_coarse_labels_fulfils_its_contract() -> None:
    spec = streams.Inflow(historical=0.5, partition=streams.Pachinko(), num_clients=7)
    check_world(spec, coarse=LABELS // 2)


@every(
    sample_weights.SAMPLE_WEIGHTS,
    sample_weights.InverseAge(power=0.0),
    sample_weights.OldAndNew(strategy="uniform"),
    sample_weights.OldAndNew(strategy="historical"),
    sample_weights.OldAndNew(strategy="fresh"),
    sample_weights.OldAndNew(strategy="mass", mass=0.3),
    sample_weights.OldAndNew(ratio=0.5, fresh_clients="all"),
)
def test_sample_weights_fulfil_their_contract(policy: Any) -> None:
    check_sample_weights(policy)


@every(
    memory.POLICIES,
    memory.Dds(exact=True),
    memory.Dds(stochastic_rounding=True, budget=0.9),
    memory.Dds(budget=1.0, zero_prob_rule="zero"),
    memory.DdsStationary(budget=0.2, stochastic_rounding=True),
    memory.DdsStationary(budget=1.0),
    memory.UniformRatio(budget=0.01),
    memory.UniformRatio(budget=0.33, stochastic_rounding=True),
    memory.UniformRatio(budget=1.0),
    memory.Drsr(mode="match"),
    memory.Importance(budget=1.0, outlier=1.2),
    memory.Ode(quotas="none"),
    memory.Ode(pool="new"),
    memory.Ode(pool="new", quotas="none"),
)
def test_memory_policies_fulfil_their_contract(policy: Any) -> None:
    check_memory_policy(policy)


@every(
    selection.RULES,
    selection.Uniform(0.01),
    selection.Uniform(1.0),
    selection.Dpcs(participation=1.0, goal="mean", counter=selection.CumulativeCounter()),
    selection.Dpcs(goal="pooled_counts", norm="l1", fill="uniform_fill", ridge=0.0),
    selection.Dpcs(goal=(0.5, 0.5, 0.0), draw="systematic", counter=selection.WindowCounter(4)),
    selection.Dpcs(
        counter=selection.DecayCounter(0.5),
        privacy=selection.LabelPrivacy(epsilon=1.0, min_change=0.1, min_count=2),
    ),
    selection.BalancedCohort(participation=1.0),
    selection.BalancedCohort(goal="population", loss_weight=0.0),
    selection.BalancedCohort(
        tries=1,
        patience=1.0,
        counter=selection.WindowCounter(4),
        privacy=selection.LabelPrivacy(epsilon=1.0, min_change=0.1, min_count=2),
    ),
    selection.PowerOfChoice(form="cpow-d", candidates=1, batch=2),
    selection.PowerOfChoice(form="rpow-d", candidates=1000),
)
def test_selection_rules_fulfil_their_contract(policy: Any) -> None:
    check_selection(policy)


@every(
    {name: cls for name, cls in forecast.FORECASTS.items() if name != "auto"},
    forecast.Exact(proxy="js"),
    forecast.Exact(proxy="l1"),
    forecast.Noisy(noise=1.0),
    forecast.Noisy(noise=0.1, perturb_support_only=True, proxy="l2"),
    forecast.Bayesian(prior=0.01, proxy="l2_squared"),
    forecast.Bayesian(forgetting=True),
    forecast.Growing(forgetting=True),
    forecast.Growing(forgetting=True, prior_strength=2.0, max_states=2),
    forecast.Growing(patience=2, importance="frequency", prior_strength=5.0),
    forecast.Growing(max_states=1, distance="l1"),
    forecast.Growing(max_states=2, distance="l2", new_state_threshold=0.01, proxy="js"),
)
def test_forecasts_fulfil_their_contract(policy: Any) -> None:
    check_forecast(policy)


@every(
    serving.SERVINGS,
    serving.BestRecent(loss="error", switch_every=7.0),
    serving.BestRecent(combine="best", eta=3.0),
    serving.BestRecent(last_label=False, averaged=False),
    serving.BestRecent(feedback="round"),
)
def test_serving_policies_fulfil_their_contract(policy: Any) -> None:
    check_serving(policy)


@every(local.STOPPINGS, local.GainThreshold(gain=0.5))
def test_stopping_rules_fulfil_their_contract(policy: Any) -> None:
    check_stopping(policy)


@every(local.PRIVACIES, local.Gaussian(clip=0.1, noise=20.0, delta=1e-9))
def test_privacy_policies_fulfil_their_contract(policy: Any) -> None:
    check_privacy(policy)


@every(
    aggregation.WEIGHTS,
    aggregation.ShiftAware(exact=True, noise=0.01),
    aggregation.ShiftAware(normalise="all", availability="estimated"),
    aggregation.ShiftAware(slope=1000.0, offset=-1000.0),
    aggregation.ShiftAware(mismatch="kme"),
    aggregation.ByWeight(normalise="all"),
)
def test_aggregation_weights_fulfil_their_contract(policy: Any) -> None:
    check_weights(policy)


@every(
    aggregation.STALENESS,
    aggregation.PolynomialDiscount(power=3.0, max_staleness=1),
    aggregation.HingeDiscount(after=0, slope=0.0, max_staleness=20),
    aggregation.ConstantDiscount(share=0.0),
)
def test_staleness_rules_fulfil_their_contract(policy: Any) -> None:
    check_staleness(policy)


@every(
    aggregation.SERVER_RULES,
    aggregation.Step(radius=100.0),
    aggregation.Step(lr=0.1),
    aggregation.Step(decay="cosine"),
    aggregation.FedAvgM(momentum=0.0, lr=0.1),
    aggregation.FedAdam(beta_mean=0.0, beta_square=0.0, adaptivity=1e-9),
    aggregation.FedYogi(beta_square=0.0, adaptivity=1e-9),
    aggregation.FedAdagrad(beta_mean=0.9),
    aggregation.Buffered(size=1),
    aggregation.Buffered(size=3, lr=0.1),
)
def test_server_rules_fulfil_their_contract(policy: Any) -> None:
    check_server_rule(policy)


@every(
    aggregation.ROBUST,
    aggregation.Median(weighted=True),
    aggregation.TrimmedMean(share=0.3, weighted=True),
    aggregation.NormClip(bound=2.0),
    aggregation.NormClip(factor=1.5),
    aggregation.Krum(hostile=0.3, too_few="skip"),
    aggregation.MultiKrum(kept=2),
    aggregation.MultiKrum(weighted=True, too_few="skip"),
)
def test_robust_rules_fulfil_their_contract(policy: Any) -> None:
    check_robust(policy)


@every(
    bank.BANKS,
    bank.FedDrift(drift_threshold=0.0, merge_threshold=0.0),
    bank.FedDrift(drift_threshold=0.05, merge_threshold=2.0, isolation=0, max_models=2),
    bank.FedDrift(measure="accuracy", drift_threshold=0.1),
    bank.Ifca(models=1),
    bank.Ifca(models=4),
    bank.FedRc(num_models=1),
    bank.FedRc(num_models=4, prediction="hard"),
    bank.FedDaa(every=2),
    bank.FedDaa(every=1, missing="mask", output="probabilities"),
    bank.FedDaa(every=2, cluster_count="given", given=(3, 1, 2), missing="impute"),
    bank.FedDaa(every=2, use_ncd=False, use_daa=False, single_cluster_threshold=0.25),
    bank.FedDaa(every=3, use_rdld=False, shrinking="matched", first_count=5),
    bank.FedDaa(every=None),
    bank.TwoMixtures(every=2, max_conflict=0.0, sufficient_loss=0.0, significance=1.0),
    bank.TwoMixtures(every=1, max_conflict=0.0, sufficient_loss=0.0, max_models=2),
    bank.TwoMixtures(max_conflict=0.0, sufficient_loss=0.0, unused_rounds=1, patience=1),
)
def test_banks_fulfil_their_contract(policy: Any) -> None:
    check_bank(policy)


@every(
    sessions.SESSION_STARTS,
    sessions.Reset(session=2),
    sessions.Average(pilot_sessions=0, first_start="random"),
    sessions.Average(pilot_sessions=3),
    sessions.WarmStart(pilot_sessions=0, probe_rounds=3, scale=0.0),
    sessions.WarmStart(pilot_sessions=3, first_start="random", scale=math.inf),
    sessions.WarmStart(random_pilot=True),
    sessions.WarmStart(first_start="latest", distance="raw", history=2),
    sessions.WarmStart(distance="global_unit", history=1, keep="diverse"),
    sessions.WarmStart(distance="inner_product", history=3, keep="diverse"),
    sessions.Judged(history=1, pilot_sessions=0),
    sessions.Judged(history=2, pilot_sessions=3, agreement=0.5),
)
def test_session_starts_fulfil_their_contract(policy: Any) -> None:
    check_session_start(policy)


@every(
    sessions.SESSION_TRIGGERS,
    sessions.Presence(tolerance=0.0, risk=0.3),  # opens sessions often
    sessions.Presence(debounce=3, alarm_share=0.1, alarm_window=2),
)
def test_session_triggers_fulfil_their_contract(policy: Any) -> None:
    check_session_trigger(policy)


@every(
    drift.ALARMS,
    drift.PageHinkley(threshold=0.0, min_values=1, slack=0.0),  # raises alarms nearly always
    drift.PageHinkley(direction="both", memory=0.9, watch="loss"),
    drift.Ddm(level=1.0, min_values=1),
    drift.WindowTest(test="mean", reference=6, recent=2, significance=0.2),
    drift.WindowTest(action=drift.CombinedActions(keep=0.5, factor=2.0)),
    drift.RiverAlarm("ADWIN", "clock=1"),
    drift.RiverAlarm("KSWIN", "window_size=20,stat_size=8"),
    drift.RiverAlarm("EDDM"),
    drift.RiverAlarm("HDDMW"),
    drift.RiverAlarm("DummyDriftDetector", "t_0=1", max_values=2),  # raises an alarm for each value
    drift.RiverAlarm("NoDrift", max_values=10),
)
def test_alarms_fulfil_their_contract(policy: Any) -> None:
    check_alarm(policy)


@dataclass(frozen=True)
class KeepsTooMuch:
    def init(self, capacity: int, held: int) -> None:
        return None

    def keep(
        self, state: None, intake: MemoryContext, rng: np.random.Generator
    ) -> tuple[None, Ints]:
        return None, np.arange(intake.held + intake.num_new)


@dataclass(frozen=True)
class KeepsTheFirst:
    """Ignores new samples, also while there is room."""

    def init(self, capacity: int, held: int) -> None:
        return None

    def keep(
        self, state: None, intake: MemoryContext, rng: np.random.Generator
    ) -> tuple[None, Ints]:
        return None, np.arange(intake.held)


@dataclass(frozen=True)
class HasOwnGenerator:
    """Draws from its own generator instead of the given one."""

    rng: Any = np.random.default_rng(0)  # noqa: RUF009  the mistake that the contract must detect

    def init(self, capacity: int, held: int) -> None:
        return None

    def keep(
        self, state: None, intake: MemoryContext, rng: np.random.Generator
    ) -> tuple[None, Ints]:
        return None, self.rng.permutation(intake.held + intake.num_new)[: intake.capacity]


@dataclass(frozen=True)
class PredictsTooMuch(memory.UniformRatio):
    """Predicts a larger renewal than it makes."""

    def predict_renewal(self, state: None, intake: MemoryContext) -> Floats:
        return np.ones(len(intake.outlook.probs))


class ChoosesAbsent:
    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return np.arange(roster.num_clients)


class AnswersNan(selection.Available):
    """Its clients answer with nan."""

    sends_models = False

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return roster.present

    def answer_survey(self, view: SurveyContext) -> tuple[None, Mapping[str, Floats]]:
        return None, {"loss": np.array([np.nan])}


class DoublesModels(bank.OneModel):
    """Multiplies the model by two."""

    def assign(
        self, state: None, roster: Roster, responses: SurveyResponses, num_models: int
    ) -> bank.BankAssignment:
        return (
            super().assign(state, roster, responses, num_models)._replace(mix=np.full((1, 1), 2.0))
        )


class HoldsOutAll(local.GainThreshold):
    """Holds all samples out, so that none are left for training."""

    def hold_out(self, num_rows: int) -> Ints:
        return np.arange(num_rows)


class ChangesItsState:
    """Adds to a vector of its state in place."""

    def init(self, model: Floats32, pieces: Any) -> Floats32:
        return np.zeros_like(model)

    def choose_start(
        self, state: Floats32, last: Floats32, run_probe_round: Any
    ) -> tuple[Floats32, Floats32]:
        state += last
        return state, state.copy()


@dataclass(frozen=True)
class MixesClients(drift.PageHinkley):
    """Takes the index in the list for the client."""

    def update(self, state: Any, clients: Ints, values: Floats) -> Any:
        return super().update(state, np.arange(len(clients)), values)


class SumsToMoreThanOne:
    def weigh(self, updates: Updates, roster: Roster) -> Floats:
        return np.ones(len(updates))


class RewardsLateness:
    """Has larger factors for later updates."""

    max_staleness = None

    def factor(self, staleness: Ints) -> Floats:
        return 1 - 1 / (1.0 + staleness)


@pytest.mark.parametrize(
    ("check", "policy", "message"),
    [
        (check_memory_policy, KeepsTooMuch(), "at most capacity samples are kept"),
        (check_memory_policy, KeepsTheFirst(), "enough arrivals fill the memory"),
        (check_memory_policy, HasOwnGenerator(), "same generator, same choice"),
        (check_memory_policy, PredictsTooMuch(), "the prediction is the mean renewal"),
        (check_selection, ChoosesAbsent(), "only present clients"),
        (check_selection, AnswersNan(), "uploads are finite"),
        (check_stopping, HoldsOutAll(), "some samples are left for training"),
        (check_weights, SumsToMoreThanOne(), "weights sum to one"),
        (check_bank, DoublesModels(), "rows of the mix sum to one"),
        (check_session_start, ChangesItsState(), "arguments do not change"),
        (check_staleness, RewardsLateness(), "the factor of a new update is one"),
        (check_alarm, MixesClients(), "clients are independent"),
    ],
)
def test_broken_contract_is_detected_and_named(check: Any, policy: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check(policy)
