"""Recipes reject worlds and components that they cannot work with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from thalweg.aggregation import (
    SERVER_RULES,
    STALENESS,
    WEIGHTS,
    Averaged,
    Buffered,
    ByArrivals,
    BySamples,
    ByWeight,
    Equal,
    FedExp,
    Flash,
    LabelBalanced,
    Masked,
    Median,
    NormClip,
    PolynomialDiscount,
    Step,
)
from thalweg.bank import FedDaa, FedDrift, OneModel, TwoMixtures
from thalweg.core.errors import ConfigError, require
from thalweg.core.types import Floats, Floats32, Ints, SampleAges, Supplies
from thalweg.drift import (
    Action,
    CombinedActions,
    DropOutdated,
    OpenState,
    PageHinkley,
    ScaleLr,
    Shrink,
)
from thalweg.engine.builders import list_inert
from thalweg.engine.builders import make_world as make_scenario_world
from thalweg.engine.loop import run_plan
from thalweg.engine.plan import make_plan
from thalweg.forecast import Bayesian, Exact, Growing, Noisy
from thalweg.local import Continuous, Curvature, Gaussian, Scaffold, TaskLoss
from thalweg.memory import Ode
from thalweg.recipes import Recipe, fedavg, sfedpo, warmstart
from thalweg.recipes.compatibility import check_compatibility, find_inert
from thalweg.recipes.monitoring import list_monitored
from thalweg.sample_weights import Early, InverseAge
from thalweg.selection import BalancedCohort, Dpcs, PowerOfChoice
from thalweg.sessions import Judged, Presence
from thalweg.streams import Inflow, LatentStates, Setting, Steps, World


@dataclass(frozen=True)
class OnlyTwoClasses:
    """Sample weights for two classes and clients with data."""

    def weigh(self, holding: SampleAges) -> Floats:
        return np.ones(len(holding.labels))

    def check_world(self, supplies: Supplies, num_classes: int) -> None:
        require(num_classes == 2, f"expected two classes, got {num_classes}.")
        require(bool((supplies.total > 0).all()), "a client has no data.")


def make_world(num_classes: int = 2) -> World:
    """A world without known latent states."""
    labels = np.arange(40) % num_classes
    return Inflow(num_clients=4).build(Setting(labels, num_classes, 1, 10, 5, 0))


def make_latent_world() -> World:
    """A world with known latent states."""
    setting = Setting(np.arange(4000) % 4, 4, 1, 10, 5, 0)
    return LatentStates(num_clients=4).build(setting)


def make_steps_world(rounds_per_step: int) -> World:
    spec = Steps(
        num_clients=4, rounds_per_step=rounds_per_step, concepts=((0, 1),), rotations=(0.0,)
    )
    return spec.build(Setting(np.arange(40) % 3, 3, 1, 10, rounds_per_step, 0))


def masked(**parts: Any) -> Recipe:
    return replace(fedavg(), secure_aggregation=Masked(), **parts)


def test_a_policy_can_reject_a_world_before_the_run() -> None:
    recipe = replace(fedavg(), sample_weights=OnlyTwoClasses())
    check_compatibility(recipe, make_world(2))
    with pytest.raises(ConfigError, match="expected two classes, got 3"):
        check_compatibility(recipe, make_world(3))


def test_a_policy_without_a_check_accepts_every_world() -> None:
    check_compatibility(replace(fedavg(), sample_weights=InverseAge()), make_world(3))


def test_an_alarm_action_without_effect_is_rejected() -> None:
    opening = replace(fedavg(), alarm=PageHinkley(action=OpenState()))
    with pytest.raises(ConfigError, match=r"forecast=Exact has fixed states. Use forecast=growing"):
        check_compatibility(opening, make_latent_world())
    check_compatibility(replace(opening, forecast=Growing()), make_latent_world())
    check_compatibility(opening, make_world())  # without known states the default learns them
    clustering = replace(
        fedavg(), alarm=PageHinkley(action=CombinedActions(keep=0.5, recluster=True))
    )
    with pytest.raises(ConfigError, match=r"bank=OneModel has one model. Use a bank of several"):
        check_compatibility(clustering, make_world())
    check_compatibility(replace(clustering, bank=FedDrift()), make_world())


def test_the_time_steps_of_a_bank_must_be_those_of_the_world() -> None:
    for bank in (FedDaa(every=40), FedDaa(every=1), FedDrift(every=40)):
        with pytest.raises(ConfigError, match=r"rounds_per_step=5.*Set bank\.every=5 or world"):
            check_compatibility(replace(fedavg(), bank=bank), make_steps_world(5))
        check_compatibility(replace(fedavg(), bank=bank), make_world())
    for bank in (FedDaa(every=5), FedDaa(every=None), FedDrift(every=5), FedDrift(every=1)):
        check_compatibility(replace(fedavg(), bank=bank), make_steps_world(5))


def test_scaffold_needs_a_single_model() -> None:
    recipe = replace(fedavg(), objective=Scaffold())
    check_compatibility(recipe, make_world())
    with pytest.raises(
        ConfigError, match=r"objective=Scaffold is incompatible with bank=FedDrift.* bank=one-model"
    ):
        check_compatibility(replace(recipe, bank=FedDrift()), make_world())


@dataclass(frozen=True)
class WithServerPart(TaskLoss):
    """A user-defined objective with a part at the server."""

    def init_server(self, num_clients: int, num_params: int) -> None:
        return None

    def broadcast(self, state: None, clients: Ints) -> Mapping[str, Floats32]:
        return {}

    def collect(self, state: None, clients: Ints, uploads: Mapping[str, Floats32]) -> None:
        return None


@dataclass(frozen=True)
class WithDeclaredServerPart(WithServerPart):
    needs_single_model = False


def test_a_policy_with_a_server_half_needs_a_single_model_unless_it_declares_otherwise() -> None:
    with pytest.raises(ConfigError, match=r"objective=WithServerPart .* needs a single model"):
        check_compatibility(
            replace(fedavg(), objective=WithServerPart(), bank=FedDrift()), make_world()
        )
    for part in (WithDeclaredServerPart(), Curvature(), Continuous()):
        check_compatibility(replace(fedavg(), objective=part, bank=FedDrift()), make_world())
    check_compatibility(replace(fedavg(), memory=Ode(), bank=FedDrift()), make_world())


@pytest.mark.parametrize(
    ("stage", "part", "reason", "remedy"),
    [
        ("server", FedExp(), "needs individual updates", "server=step or adaptive or fedacg"),
        ("weights", ByWeight(), "needs individual updates", "weights=equal or by-samples"),
        ("robust", Median(), "needs individual updates", "robust=none"),
        ("bank", FedDrift(), "has several models", "bank=one-model"),
        ("staleness", PolynomialDiscount(), "accepts updates after the sum", "staleness=reject"),
        ("objective", Scaffold(), "uploads more than the update", "another objective"),
        ("memory", Ode(), "uploads more than the update", "another memory"),
        ("sample_weights", Early(), "scales single updates", "another sample_weights"),
        ("alarm", PageHinkley(action=ScaleLr()), "scales single updates", "another alarm.action"),
        ("server", Averaged(rule=FedExp()), "needs individual updates", "server=step or adaptive"),
        ("weights", ByArrivals(), "needs individual updates", "weights=equal or by-samples"),
        ("weights", LabelBalanced(), "needs individual updates", "weights=equal or by-samples"),
        ("bank", TwoMixtures(), "has several models", "bank=one-model"),
        ("selection", PowerOfChoice(), "sends losses of the server's models", "another selection"),
        ("session_start", Judged(), "sends losses of the server's models", "another session_start"),
    ],
)
def test_secure_aggregation_rejects_components_that_need_more_than_the_sum(
    stage: str, part: Any, reason: str, remedy: str
) -> None:
    message = (
        f"secure_aggregation=masked is incompatible with {stage}={type(part).__name__}: it "
        f"{reason}. Remove secure_aggregation or choose {remedy}"
    )
    with pytest.raises(ConfigError, match=message):
        check_compatibility(masked(**{stage: part}), make_world())


@pytest.mark.parametrize("action", [Shrink(), CombinedActions(keep=0.5)])
def test_secure_aggregation_rejects_alarms_that_empty_the_memories_of_single_clients(
    action: Action,
) -> None:
    with pytest.raises(ConfigError, match=r"all clients but one\. .*alarm\.action=drop-outdated"):
        check_compatibility(masked(alarm=PageHinkley(action=action)), make_world())
    check_compatibility(masked(alarm=PageHinkley(action=DropOutdated())), make_world())


def test_secure_aggregation_accepts_components_that_need_only_the_sum() -> None:
    suitable = {
        stage: [kind for kind, cls in table.items() if is_accepted(stage, cls())]
        for stage, table in (
            ("weights", WEIGHTS),
            ("server", SERVER_RULES),
            ("staleness", STALENESS),
        )
    }
    assert suitable == {
        "weights": ["equal", "by-samples"],
        "server": [
            *("step", "adaptive", "fedacg", "flash"),
            *("fedavgm", "fedadam", "fedyogi", "fedadagrad", "averaged"),
        ],
        "staleness": ["reject"],
    }


def is_accepted(stage: str, part: Any) -> bool:
    try:
        check_compatibility(masked(**{stage: part}), make_world())
    except ConfigError:
        return False
    return True


@dataclass(frozen=True)
class OwnRule:
    """A user-defined server rule that does not declare what it needs."""

    def init(self, num_params: int) -> None:
        return None

    def step(
        self, state: None, model: Floats32, deltas: Floats32, weights: Floats
    ) -> tuple[None, Floats32]:
        return None, model + deltas[0]


@dataclass(frozen=True)
class OwnRuleOfTheSum(OwnRule):
    needs_individual_updates = False


@dataclass(frozen=True)
class OwnWeights:
    def weigh(self, updates: Any, roster: Any) -> Floats:
        return np.ones(len(updates))


@dataclass(frozen=True)
class OwnBank(FedDrift):
    """A user-defined bank that does not declare how many models it has."""


def test_user_defined_components_are_rejected_with_secure_aggregation_unless_they_declare_it() -> (
    None
):
    for stage, part in (("server", OwnRule()), ("weights", OwnWeights()), ("bank", OwnBank())):
        assert not is_accepted(stage, part)
    assert is_accepted("server", OwnRuleOfTheSum())
    for built_in in (Step(), Flash()):
        assert is_accepted("server", built_in)
    assert is_accepted("weights", Equal())
    assert is_accepted("bank", OneModel())


def test_a_rule_that_counts_updates_rejects_robust_rules_that_merge_them() -> None:
    message = (
        "server=Buffered is incompatible with robust=Median: the server rule counts updates, and "
        "the robust rule merges them. Choose robust=norm-clip, robust=none or another server rule"
    )
    with pytest.raises(ConfigError, match=message):
        check_compatibility(replace(fedavg(), server=Buffered(), robust=Median()), make_world())
    check_compatibility(replace(fedavg(), server=Buffered(), robust=NormClip()), make_world())
    check_compatibility(replace(fedavg(), server=Buffered(), privacy=Gaussian()), make_world())


OMITTED = Gaussian(losses="omit", counts="omit", predictions="omit")


@pytest.mark.parametrize(
    ("privacy", "parts", "match"),
    [
        (OMITTED, {"weights": BySamples()}, "needs the numbers of samples"),
        (replace(OMITTED, counts="noisy"), {"weights": ByWeight()}, "reports disclose the counts"),
        (OMITTED, {"alarm": PageHinkley(watch="error")}, "privacy.predictions=omit omits"),
        (OMITTED, {"alarm": PageHinkley(watch="loss")}, "privacy.losses=omit omits"),
        (OMITTED, {"selection": BalancedCohort()}, "needs the losses, which privacy.losses=omit"),
        (OMITTED, {"selection": PowerOfChoice(form="rpow-d")}, "selection=PowerOfChoice"),
    ],
)
def test_privacy_rejects_policies_that_need_omitted_numbers(
    privacy: Gaussian, parts: dict[str, Any], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        check_compatibility(replace(fedavg(), privacy=privacy, **parts), make_world())


def test_privacy_accepts_selections_without_the_losses_that_it_omits() -> None:
    for rule in (BalancedCohort(loss_weight=0.0), BalancedCohort(1.0), PowerOfChoice()):
        check_compatibility(replace(fedavg(), privacy=OMITTED, selection=rule), make_world())


def test_privacy_accepts_policies_that_need_noisy_numbers() -> None:
    privacy = Gaussian(losses="noisy", counts="noisy", predictions="noisy")
    parts: dict[str, Any] = {"weights": BySamples(), "alarm": PageHinkley(watch="loss")}
    check_compatibility(replace(fedavg(), privacy=privacy, **parts), make_world())


def test_privacy_rejects_reports_of_labels_and_accepts_a_survey_with_noise() -> None:
    recipe = replace(fedavg(), privacy=Gaussian(), weights=LabelBalanced())
    with pytest.raises(ConfigError, match=r"weights=LabelBalanced: clients report their label mix"):
        check_compatibility(recipe, make_world())
    hidden = Gaussian(losses="omit", counts="omit", predictions="omit")
    survey = LabelBalanced(source="survey")
    check_compatibility(
        replace(recipe, privacy=hidden, weights=survey, selection=Dpcs()), make_world()
    )


def test_weights_that_need_a_survey_of_labels_are_rejected_without_one() -> None:
    recipe = replace(fedavg(), weights=LabelBalanced(source="survey"))
    with pytest.raises(ConfigError, match=r"needs a selection that surveys .*selection=Available"):
        check_compatibility(recipe, make_world())
    check_compatibility(replace(recipe, selection=Dpcs()), make_world())


def test_privacy_rejects_policies_that_upload_sample_statistics() -> None:
    recipe = replace(fedavg(), privacy=Gaussian(), objective=Curvature())
    with pytest.raises(
        ConfigError,
        match=r"privacy=gaussian is incompatible with objective=Curvature: it uploads statistics "
        "of the samples without noise. Remove privacy or choose another objective",
    ):
        check_compatibility(recipe, make_world())
    check_compatibility(replace(recipe, objective=TaskLoss()), make_world())


@pytest.mark.parametrize("forecast", [Exact(), Noisy(), Bayesian()], ids=repr)
def test_a_forecast_of_known_states_is_rejected_in_a_world_without_them(forecast: Any) -> None:
    recipe = replace(sfedpo(), forecast=forecast)
    check_compatibility(recipe, make_latent_world())
    with pytest.raises(
        ConfigError, match=r"needs a world with several known latent states.* forecast=growing"
    ):
        check_compatibility(recipe, make_world())


def test_the_default_forecast_and_growing_are_accepted_in_every_world() -> None:
    for world in (make_world(), make_latent_world()):
        check_compatibility(sfedpo(), world)
        check_compatibility(replace(sfedpo(), forecast=Growing()), world)


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (fedavg(), {}),
        (sfedpo(), {}),  # learns the states
        (replace(fedavg(), staleness=PolynomialDiscount()), {"staleness": "no late updates"}),
        (replace(fedavg(), forecast=Growing()), {"forecast": "no policy of the recipe uses it"}),
        (replace(sfedpo(), forecast=Exact()), {"forecast": "one latent state"}),
    ],
)
def test_parts_without_effect_are_found(recipe: Recipe, expected: Mapping[str, str]) -> None:
    world = make_world()
    found = find_inert(recipe, world, has_late_updates=False, presence_changes=False)
    assert found == expected


def test_parts_with_an_effect_are_not_listed() -> None:
    recipe = replace(warmstart(), staleness=PolynomialDiscount())
    found = find_inert(recipe, make_world(), has_late_updates=True, presence_changes=True)
    assert found == {}


def test_a_trigger_has_no_effect_if_all_clients_are_always_present() -> None:
    always = ["world.availability=1", "world.availability_spread=0"]
    overrides = [*always, "session_trigger=presence"]
    plan = make_plan("fedavg", "digits-full", rounds=3, overrides=overrides)
    world = make_scenario_world(plan.scenario, plan.scenario.data.load(None, 0), 0)
    found = list_inert(plan, world)
    assert found == {"session_trigger": "all clients are always present, so that no session opens"}
    without = make_plan("fedavg", "digits-full", rounds=3, overrides=always)
    assert np.array_equal(run_plan(plan).model, run_plan(without).model)
    assert list_inert(plan, world, is_remote=True) == {}
    for setting in ("world.availability=0.9", "sessions=alternating"):
        changing = make_plan("fedavg", "digits-full", rounds=3, overrides=[*overrides, setting])
        data = changing.scenario.data.load(None, 0)
        assert list_inert(changing, make_scenario_world(changing.scenario, data, 0)) == {}
    waiting = replace(plan.recipe, session_trigger=Presence(alarm_share=0.5))
    assert find_inert(waiting, world, has_late_updates=False, presence_changes=False) == {}


def test_a_session_start_has_no_effect_if_no_session_can_open() -> None:
    always = ["world.availability=1", "world.availability_spread=0", "session_trigger=presence"]
    started, plain = (
        make_plan("fedavg", "digits-full", rounds=3, overrides=[*always, f"session_start={start}"])
        for start in ("judged", "previous")
    )
    world = make_scenario_world(started.scenario, started.scenario.data.load(None, 0), 0)
    found = list_inert(started, world)
    assert found.keys() == {"session_trigger", "session_start"}
    assert found["session_start"] == "no session opens"
    assert list_inert(plain, world).keys() == {"session_trigger"}
    assert np.array_equal(run_plan(started).model, run_plan(plain).model)
    assert list_monitored(started.recipe, found) == []
    assert len(list_monitored(started.recipe)) == 2


def test_alarms_and_serving_have_no_effect_if_no_samples_arrive() -> None:
    tested = "prequential=32"
    more = ["alarm=page-hinkley", "serving=best-recent", tested]
    plan, without = (
        make_plan("fedavg", "churn-digits", rounds=12, overrides=changes)
        for changes in (more, [tested])
    )
    world = make_scenario_world(plan.scenario, plan.scenario.data.load(None, 0), 0)
    found = list_inert(plan, world)
    assert found == {
        "alarm": "no samples arrive, so that none are predicted",
        "serving": "no samples arrive, so that the default predicts",
    }
    assert list_monitored(plan.recipe, found) == []
    ours, theirs = run_plan(plan), run_plan(without)
    assert np.array_equal(ours.model, theirs.model)
    names = ("accuracy", "client_accuracy", "loss", "bytes_up", "bytes_down")
    assert [ours.final[name] for name in names] == [theirs.final[name] for name in names]
    assert list_inert(plan, world, is_remote=True) == {}
    on_losses = make_plan(
        "fedavg", "churn-digits", overrides=["alarm=page-hinkley", "alarm.watch=loss"]
    )
    assert list_inert(on_losses, world) == {}, "clients train in every round"
    arriving = make_plan("fedavg", "digits-full", overrides=more)
    data = arriving.scenario.data.load(None, 0)
    assert list_inert(arriving, make_scenario_world(arriving.scenario, data, 0)) == {}


def test_a_proxy_has_no_effect_if_no_policy_uses_it() -> None:
    weights, stationary = "weights=equal", "memory=dds-stationary"
    plans = [
        make_plan(
            "sfedpo", "digits-partial", rounds=3, overrides=[*changes, f"forecast.proxy={proxy}"]
        )
        for changes in ([weights, stationary], [weights], [stationary])
        for proxy in ("l2", "kl")
    ]
    world = make_scenario_world(plans[0].scenario, plans[0].scenario.data.load(None, 0), 0)
    reason = "no policy of the recipe uses distances from balanced states"
    assert [list_inert(plan, world) for plan in plans] == [{"forecast.proxy": reason}, *[{}] * 5]
    assert np.array_equal(run_plan(plans[0]).model, run_plan(plans[1]).model)


def test_a_session_trigger_that_waits_for_alarms_needs_an_alarm() -> None:
    recipe = replace(fedavg(), session_trigger=Presence(alarm_share=0.3))
    with pytest.raises(ConfigError, match=r"alarm_share=0.3 needs alarms.*alarm=page-hinkley"):
        check_compatibility(recipe, make_world())
    check_compatibility(replace(recipe, alarm=PageHinkley()), make_world())
