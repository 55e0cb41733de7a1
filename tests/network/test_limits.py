"""Limits on client values, and the checks of the policies."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from thalweg.aggregation import ByArrivals, ByWeight, MemorySummary, ShiftAware
from thalweg.bank import BANKS, FedDaa, FedDrift, FedRc, Ifca, TwoMixtures
from thalweg.bank.prototype_set import UNKNOWN
from thalweg.core.errors import BadMessage, ConfigError
from thalweg.core.types import Floats, Floats32, Roster, Updates
from thalweg.federation import SurveyRequest, SurveyResponse, TrainRequest, TrainResponse
from thalweg.local import Curvature, LocalTraining, Scaffold
from thalweg.memory import Ode, Replace
from thalweg.network.limits import (
    Limits,
    bound_survey_values,
    bound_train_reports,
    check_survey_response,
    check_train_response,
    find_oversized_updates,
    limits_for,
)
from thalweg.recipes import Recipe
from thalweg.sample_weights import SAMPLE_WEIGHTS, OldAndNew
from thalweg.selection import RULES, BalancedCohort, Dpcs, PowerOfChoice
from thalweg.sessions import SESSION_STARTS, Judged
from thalweg.streams import Inflow, Setting

PLAIN = Recipe("plain", Replace())
CLASSES = Limits(num_classes=2)


def rows(*values: Any) -> Floats32:
    return np.array(values, dtype=np.float32)


def make_request(num_models: int = 1, **broadcast: dict[str, Floats32]) -> TrainRequest:
    models = np.arange(num_models)
    params = np.zeros((num_models, 4), dtype=np.float32)
    return TrainRequest(0, 0, models, np.ones(num_models), params, broadcast=broadcast)


def make_response(num_models: int = 1, num_samples: int = 10, **more: Any) -> TrainResponse:
    none = np.zeros(num_models, dtype=np.int64)
    deltas = np.ones((num_models, 4), dtype=np.float32)
    losses = np.full(num_models, 0.5)
    plain = TrainResponse(
        0, 0, np.arange(num_models), deltas, num_samples, none + 1, losses, none, none
    )
    return replace(plain, **more)


PRIORS = {"label_priors": rows(0.5, 0.5, 0.5, 0.5)}  # two models, two labels
P4 = np.ones((1, 4), dtype=np.float32)


@pytest.mark.parametrize(
    ("stage", "policy", "uploads", "why"),
    [
        ("bank", FedRc(), {"label_mass": rows([5, 0, 5, 0], [5, 0, 5, 0])}, None),
        ("bank", FedRc(), {"label_mass": rows([5, 0], [5, 0])}, "label_mass has 2 numbers, not 4"),
        ("bank", FedRc(), {"label_mass": rows([-1, 0, 5, 0], [0] * 4)}, "label_mass goes from -1"),
        (
            "bank",
            FedDaa(),
            {"label_mass": rows([90, 0, 0, 0], [0] * 4)},
            "sums to 90, expected at most 10",
        ),
        ("bank", FedDaa(), {"other": rows([1] * 4, [1] * 4)}, "the name 'other' is not known"),
        ("objective", Scaffold(), {"change": P4}, None),
        ("objective", Scaffold(), {"change": P4[:, :3]}, "change has 3 numbers, not 4"),
        ("objective", Scaffold(), {"change": P4[:, :0]}, "change has 0 numbers, not 4"),
        ("objective", Scaffold(), {"change": P4 * np.float32(1e30)}, "objective.change has norm"),
        ("objective", Curvature(), {"fisher": P4, "fisher_params": -P4}, None),
        (
            "objective",
            Curvature(),
            {"fisher": -P4, "fisher_params": P4},
            "fisher goes from -1 to -1",
        ),
        ("objective", Curvature(), {"fisher": P4}, "fisher_params is missing"),
        ("objective", Scaffold(), {"change": P4, "more": P4}, "the name 'more' is not known"),
        ("memory", Ode(), {"gradient": P4, "more": P4}, "the name 'more' is not known"),
        ("memory", Ode(), {"gradient": P4}, None),
        ("memory", Ode(), {"gradient": P4[:, :0]}, None),
        ("memory", Ode(), {"gradient": P4[:, :3]}, "multiple of the 2 classes"),
        ("memory", Ode(), {"gradient": np.ones((1, 6), dtype=np.float32)}, "gradient has 6 num"),
    ],
)
def test_impossible_uploads_are_rejected(
    stage: str, policy: Any, uploads: dict[str, Floats32], why: str | None
) -> None:
    recipe = replace(PLAIN, **{stage: policy})
    num = len(next(iter(uploads.values())))
    response = make_response(
        num, uploads={f"{stage}.{name}": values for name, values in uploads.items()}
    )
    request = make_request(num, **({"bank": PRIORS} if stage == "bank" else {}))
    if why is None:
        check_train_response(response, request, recipe, CLASSES)
        return
    with pytest.raises(BadMessage, match=re.escape(why)):
        check_train_response(response, request, recipe, CLASSES)


@pytest.mark.parametrize(
    ("weights", "name", "value"),
    [
        (ByWeight(), "total_weight", -1.0),
        (ShiftAware(), "shift_score", -0.5),
        (ByArrivals(), "num_arrived", -1.0),
    ],
)
def test_impossible_reports_are_rejected(weights: Any, name: str, value: float) -> None:
    recipe = replace(PLAIN, weights=weights)
    check_train_response(
        make_response(reports={name: np.array([0.5])}), make_request(), recipe, Limits()
    )
    with pytest.raises(BadMessage, match=f"TrainResponse: {name} goes from {value:g}"):
        check_train_response(
            make_response(reports={name: np.array([value])}), make_request(), recipe, Limits()
        )
    with pytest.raises(BadMessage, match=f"TrainResponse: {name} is 1e\\+12"):
        check_train_response(
            make_response(reports={name: np.array([1e12])}), make_request(), recipe, Limits()
        )


class WithoutChecks:
    """Weights of a user that do not validate what clients report."""

    def report(self, summary: MemorySummary) -> dict[str, float]:
        return {"own": 0.5}

    def weigh(self, updates: Updates, roster: Roster) -> Floats:
        return np.full(len(updates), 1 / len(updates))


@pytest.mark.parametrize(
    ("weights", "name"),
    [
        (ByWeight(), "total_weight"),
        (ShiftAware(), "shift_score"),
        (ByArrivals(), "num_arrived"),
        (WithoutChecks(), "own"),
    ],
)
def test_report_cannot_replace_numbers_that_the_server_stores(weights: Any, name: str) -> None:
    recipe, own = replace(PLAIN, weights=weights), {name: np.array([0.5])}
    check_train_response(make_response(reports=own), make_request(), recipe, Limits())
    for other in ("loss", "rounds_waited"):
        forged = make_response(reports={**own, other: np.array([1e8])})
        if other == "loss" or not isinstance(weights, WithoutChecks):
            with pytest.raises(BadMessage, match=f"TrainResponse: the name '{other}' is "):
                check_train_response(forged, make_request(), recipe, Limits())


def numbers(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


PROTOTYPES = {
    "new_since": numbers(3),
    "new_prototype": numbers(1, 2, 3, 4),
    "new_prototype_classes": numbers(1, 1),
    "old_prototype": numbers(0, 0, 3, 4),
    "old_prototype_classes": numbers(0, 1),
}
ERRORS = {
    "new_prototype_errors": numbers(0.5, 0.5),
    "old_prototype_errors": numbers(UNKNOWN, 0.5),
    "model_losses": numbers(1),
    "least_model_losses": numbers(0.5),
}


@pytest.mark.parametrize(
    ("stage", "policy", "values", "why"),
    [
        ("bank", FedDrift(), {"model_costs": numbers(1), "newest_samples": numbers(5)}, None),
        ("bank", FedDrift(), {"model_costs": numbers(1)}, "newest_samples is missing"),
        (
            "bank",
            FedDrift(),
            {"model_costs": numbers(1, 2), "newest_samples": numbers(5)},
            "model_costs has 2 numbers, not 1",
        ),
        (
            "bank",
            FedDrift(measure="accuracy"),
            {"model_costs": numbers(2), "newest_samples": numbers(5)},
            "model_costs goes from 2 to 2, but only 0 to 1 is possible",
        ),
        (
            "bank",
            FedDrift(),
            {"model_costs": numbers(1), "newest_samples": numbers(1e8)},
            "newest_samples goes from 1e+08",
        ),
        (
            "bank",
            FedDrift(every=5),
            {
                "model_costs": numbers(1),
                "newest_samples": numbers(5),
                "cost_before": numbers(-1),
            },
            "cost_before goes from -1",
        ),
        ("bank", FedDaa(), PROTOTYPES, None),
        ("bank", FedDaa(), {**PROTOTYPES, "old_prototype": numbers(1)}, "old_prototype has 1 num"),
        (
            "bank",
            FedDaa(),
            {**PROTOTYPES, "new_prototype": numbers(1, 2, 3)},
            "has 3 numbers, expected a multiple",
        ),
        ("bank", FedDaa(), {**PROTOTYPES, "new_since": numbers(-2)}, "new_since goes from -2"),
        (
            "bank",
            FedDaa(),
            {**PROTOTYPES, "new_prototype_classes": numbers(1, 7)},
            "new_prototype_classes goes from 1 to 7, but only 0 to 1",
        ),
        (
            "bank",
            FedDaa(),
            {**PROTOTYPES, "new_prototype_classes": numbers(1, 1, 1, 1)},
            "new_prototype_classes has 4 numbers, not 2",
        ),
        ("bank", FedDaa(), {"new_prototype": numbers(1)}, "new_since is missing"),
        ("bank", FedDaa(), {**PROTOTYPES, **ERRORS}, "'least_model_losses' is not known"),
        ("bank", TwoMixtures(), {**PROTOTYPES, **ERRORS}, None),
        ("bank", TwoMixtures(), PROTOTYPES, "new_prototype_errors is missing"),
        (
            "bank",
            TwoMixtures(),
            {**PROTOTYPES, **ERRORS, "least_model_losses": numbers(1, 2)},
            "least_model_losses has 2 numbers, not 1",
        ),
        (
            "bank",
            TwoMixtures(),
            {**PROTOTYPES, **ERRORS, "new_prototype_errors": numbers(0.5)},
            "new_prototype_errors has 1 numbers, not 2",
        ),
        (
            "bank",
            TwoMixtures(),
            {**PROTOTYPES, **ERRORS, "old_prototype_errors": numbers(-1, 1)},
            "old_prototype_errors goes from -1 to 1",
        ),
        (
            "bank",
            TwoMixtures(),
            {**PROTOTYPES, **ERRORS, "old_prototype_errors": numbers(1e30, 1)},
            "old_prototype_errors is 1e+30",
        ),
        ("selection", Dpcs(), {"label_mix": numbers(0.3, 0.7)}, None),
        ("selection", Dpcs(), {"label_mix": numbers(0, 0)}, None),
        ("selection", Dpcs(), {"label_mix": numbers(0.3, 0.3)}, "label_mix sums to 0.6, not to 1"),
        ("selection", Dpcs(), {"label_mix": numbers(1, 0, 0)}, "label_mix has 3 numbers, not 2"),
        ("selection", Dpcs(), {"label_mix": numbers(-1, 2)}, "label_mix goes from -1 to 2"),
        ("selection", Dpcs(goal="pooled_counts"), {"label_counts": numbers(30, 70)}, None),
        (
            "selection",
            Dpcs(goal="pooled_counts"),
            {"label_counts": numbers(3, 1e8)},
            "label_counts goes from 3 to 1e+08",
        ),
        ("selection", PowerOfChoice(), {"candidate_loss": numbers(-1)}, None),
        ("selection", PowerOfChoice(), {"candidate_loss": numbers(-2)}, "candidate_loss goes from"),
        (
            "selection",
            PowerOfChoice(),
            {"candidate_loss": numbers(1e30)},
            "candidate_loss is 1e+30",
        ),
        ("selection", PowerOfChoice(), {"candidate_loss": numbers(np.nan)}, "contains nan"),
        ("sample_weights", OldAndNew(), {"bounds": numbers(1, 2, 3)}, None),
        ("sample_weights", OldAndNew(), {"bounds": numbers(1, 2)}, "bounds has 2 numbers, not 3"),
        ("sample_weights", OldAndNew(), {}, None),
        ("session_start", Judged(), {"candidate_losses": numbers(0.5)}, None),
        (
            "session_start",
            Judged(),
            {"candidate_losses": numbers(0.5, 1)},
            "candidate_losses has 2 numbers, not 1",
        ),
        ("session_start", Judged(), {"candidate_losses": numbers(1e30)}, "candidate_losses is 1e"),
    ],
)
def test_impossible_survey_responses_are_rejected(
    stage: Any, policy: Any, values: dict[str, Floats], why: str | None
) -> None:
    recipe = replace(PLAIN, **{stage: policy})
    request = SurveyRequest(0, 0, stage, np.zeros((1, 4), dtype=np.float32))
    response = SurveyResponse(0, 0, stage, values)
    if why is None:
        check_survey_response(response, request, recipe, CLASSES)
        return
    with pytest.raises(BadMessage, match=re.escape(why)):
        check_survey_response(response, request, recipe, CLASSES)


ANSWERS: list[tuple[Any, Any, dict[str, Floats]]] = [
    ("bank", FedDrift(), {"model_costs": numbers(1), "newest_samples": numbers(5)}),
    ("bank", Ifca(), {"model_losses": numbers(1)}),
    ("bank", FedDaa(), PROTOTYPES),
    ("bank", TwoMixtures(), {**PROTOTYPES, **ERRORS}),
    ("selection", Dpcs(), {"label_mix": numbers(0.3, 0.7)}),
    ("selection", BalancedCohort(), {"label_mix": numbers(0.3, 0.7)}),
    ("selection", PowerOfChoice(), {"candidate_loss": numbers(1)}),
    ("sample_weights", OldAndNew(), {"bounds": numbers(1, 2, 3)}),
    ("session_start", Judged(), {"candidate_losses": numbers(1)}),
]


@pytest.mark.parametrize(("stage", "policy", "values"), ANSWERS)
def test_survey_response_cannot_replace_numbers_that_the_server_stores(
    stage: Any, policy: Any, values: dict[str, Floats]
) -> None:
    recipe = replace(PLAIN, **{stage: policy})
    request = SurveyRequest(0, 0, stage, np.zeros((1, 4), dtype=np.float32))
    check_survey_response(SurveyResponse(0, 0, stage, values), request, recipe, CLASSES)
    for other in ("loss", "num_samples", "rounds_waited", "last_chosen", "shift_score"):
        forged = SurveyResponse(0, 0, stage, {**values, other: numbers(1e8)})
        with pytest.raises(BadMessage, match=f"SurveyResponse: the name '{other}' is "):
            check_survey_response(forged, request, recipe, CLASSES)


def test_every_policy_with_a_survey_is_tested_for_unknown_names() -> None:
    tables = (BANKS, RULES, SAMPLE_WEIGHTS, SESSION_STARTS)
    surveying = {cls for table in tables for cls in table.values() if hasattr(cls, "answer_survey")}
    assert surveying == {type(policy) for _, policy, _ in ANSWERS}


def test_fedrc_ignores_label_mass_for_another_number_of_models() -> None:
    bank = FedRc(num_models=2)
    state = bank.init(3, num_classes=2)
    broadcast = bank.collect(state, np.array([0]), {"label_mass": rows([1, 2, 3, 4])})
    assert broadcast.mass[0].tolist() == [[1, 2], [3, 4]]
    again = bank.collect(broadcast, np.array([0, 1]), {"label_mass": rows([1, 2], [3, 4])})
    assert again.mass.tolist() == broadcast.mass.tolist()
    assert bank.collect(broadcast, np.array([0]), {}).mass.tolist() == broadcast.mass.tolist()


def test_ode_restarts_its_estimate_at_a_gradient_of_another_length() -> None:
    memory = Ode()
    state = memory.collect(memory.init_server(2, 8), np.array([1]), {"gradient": rows([1, 1, 1])})
    state = memory.collect(state, np.array([0]), {"gradient": rows([4, 2])})
    assert state.mean.tolist() == [2, 1]
    assert state.senders.tolist() == [0]


def test_oversized_updates_are_found_per_model() -> None:
    small, large = np.full((2, 4), 0.5, dtype=np.float32), np.full((2, 4), 0.5, dtype=np.float32)
    large[1] = 50
    responses = [make_response(2, deltas=each) for each in (small, small, large)]
    assert list(find_oversized_updates(responses, Limits(norm_factor=10))) == [2]
    assert find_oversized_updates(responses[1:], Limits(norm_factor=10)) == {}, (
        "two updates have no usual norm"
    )
    idle = replace(responses[2], num_steps=np.array([1, 0]))
    assert find_oversized_updates([*responses[:2], idle], Limits(norm_factor=10)) == {}


def test_limits_for_a_world_follow_its_memory_and_steps() -> None:
    world = Inflow(num_clients=4).build(Setting(np.arange(40) % 2, 2, 3, 10, 5, 0))
    limits = limits_for(world, LocalTraining(lr=0.1, batch_size=4, passes=1.5), 2)
    assert (limits.max_samples, limits.num_classes) == (10, 2)
    # A pass is three batches: 6 at most in one and a half passes, and three ticks.
    assert 15 <= limits.max_steps <= 21
    assert limits_for(world, LocalTraining(lr=0.1, steps=4), 2).max_steps == 12
    assert limits_for(world, LocalTraining(lr=0.1, steps=4), 2, max_samples=99).max_samples == 99


def test_limits_that_reject_everything_are_invalid() -> None:
    with pytest.raises(ConfigError, match="max_norm"):
        Limits(max_norm=0)
    with pytest.raises(ConfigError, match="norm_factor"):
        Limits(norm_factor=0.5)


def test_more_samples_may_be_tested_than_a_memory_holds() -> None:
    many_tested = make_response(num_samples=10, num_tested=np.array([160]))
    check_train_response(many_tested, make_request(), PLAIN, Limits(max_samples=10))
    with pytest.raises(BadMessage, match="num_samples is 11, at most 10"):
        check_train_response(
            make_response(num_samples=11), make_request(), PLAIN, Limits(max_samples=10)
        )


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def bound_losses(*losses: float, **limits: Any) -> list[float]:
    responses = [make_response(losses=np.array([loss])) for loss in losses]
    bounded, _ = bound_train_reports(responses, Limits(**limits))
    return [float(response.losses[0]) for response in bounded]


def test_implausible_losses_are_replaced_by_the_median() -> None:
    assert bound_losses(2.0, 3.0, 4.0, 5.0, 1e9) == [2.0, 3.0, 4.0, 5.0, 4.0]
    assert bound_losses(2.0, 3.0, 4.0, 5.0, 41.0) == [2.0, 3.0, 4.0, 5.0, 4.0]
    assert bound_losses(2.0, 3.0, 4.0, 5.0, 40.0) == [2.0, 3.0, 4.0, 5.0, 40.0], "10 times the 4"
    # The loss of a client that has drifted may be many times that of the others.
    assert bound_losses(0.01, 0.01, 0.01, 9.9) == [0.01, 0.01, 0.01, 9.9]
    assert bound_losses(0.01, 0.01, 0.01, 10.1)[3] == 0.01
    assert bound_losses(0.01, 0.01, 0.01, 40.0, num_classes=100)[3] == 40.0, "log(100) is 4.6"
    assert bound_losses(0.01, 0.01, 0.01, 47.0, num_classes=100)[3] == 0.01
    assert bound_losses(1e9) == [1e9], "a single client has no usual value"
    assert bound_losses(1.0, 1.0, 1e9, report_factor=None)[2] == 1e9


def test_of_two_losses_the_implausible_one_is_replaced_by_the_other() -> None:
    assert bound_losses(1.0, 1e9) == [1.0, 1.0]
    assert bound_losses(2.0, 20.0) == [2.0, 20.0], "10 times the smaller one"
    assert bound_losses(2.0, 20.5) == [2.0, 2.0]
    # A client with a very small loss changes only losses of the other one that exceed the floor.
    assert bound_losses(1e-9, 9.9) == [1e-9, 9.9]
    assert bound_losses(float("nan"), 1e9)[1] == 1e9, "the first client has not trained"


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_squared_errors_of_honest_regression_clients_are_not_changed(scale: float) -> None:
    """Targets of one client are ten times as large as those of the others, in any unit."""
    losses = [scale**2 * each for each in (0.9, 1.0, 1.1, 100.0)]
    assert bound_losses(*losses, num_classes=1) == losses
    assert bound_losses(losses[0], 90 * losses[0], num_classes=1)[1] == 90 * losses[0]
    assert bound_losses(*losses, 1e9 * scale**2 + 1e3, num_classes=1)[:4] == losses
    assert bound_losses(*losses, 1e9 * scale**2 + 1e3, num_classes=1)[4] == losses[2]
    assert bound_losses(1.0, 1.0, 1.0, 99.0, num_classes=10)[3] == 1.0, "not for classes"


def test_honest_client_with_many_samples_keeps_most_of_its_count() -> None:
    responses = [make_response(num_samples=number) for number in (20, 25, 30, 4000)]
    bounded, changed = bound_train_reports(responses, Limits(count_factor=10.0))
    assert [each.num_samples for each in bounded] == [20, 25, 30, 275], "10 times the median 27.5"
    reason = "num_samples was 4000 and is reduced to 275, 10 times the median"
    assert changed == {3: f"TrainResponse: {reason}."}
    two, changed = bound_train_reports(responses[2:], Limits(count_factor=10.0))
    assert ([each.num_samples for each in two], changed) == ([30, 4000], {})


@pytest.mark.parametrize("form", ["pow-d", "rpow-d"])
def test_one_of_two_clients_with_a_lying_loss_is_not_always_selected(form: Any) -> None:
    rule, rng, wins = PowerOfChoice(participation=0.5, candidates=2, form=form), rng_of(0), 0
    for _ in range(200):
        losses = [float(rng.uniform(0.5, 2.0)), 1e9]
        name = "loss" if form == "rpow-d" else "candidate_loss"
        if form == "rpow-d":
            bounded = [np.array([each]) for each in bound_losses(*losses, num_classes=10)]
        else:
            values = [{name: np.array([loss])} for loss in losses]
            surveyed, _ = bound_survey_values(values, rule, Limits(num_classes=10))
            bounded = [each[name] for each in surveyed]
        known = {name: np.stack(bounded), "num_samples": np.full((2, 1), 10.0)}
        clients = np.arange(2)
        roster = Roster(0, clients, np.ones(2), np.zeros(2, int), known, surveyed=clients)
        wins += 1 in rule.choose(roster, rng)
    assert 60 < wins < 140, "the losses are equal, so that each is chosen in half of the rounds"


def test_losses_without_a_step_stay_missing() -> None:
    assert np.isnan(bound_losses(1.0, 1.0, float("nan"), 1e9)[2])
    assert bound_losses(1.0, 1.0, float("nan"), 1.0, 1e9)[4] == 1.0


def test_implausible_errors_and_reports_are_replaced_and_counts_are_reduced() -> None:
    ones = np.ones(1, dtype=np.int64)
    honest = make_response(
        num_samples=20,
        num_tested=ones * 8,
        num_correct=ones * 6,
        error_sums=np.array([16.0]),
        reports={"total_weight": np.array([20.0])},
    )
    liar = make_response(
        num_samples=9_000_000,
        num_tested=ones * 8_000_000,
        num_correct=ones * 4_000_000,
        error_sums=np.array([8e15]),
        reports={"total_weight": np.array([1e8])},
    )
    limits = Limits(count_factor=10.0)
    (*_, bounded), changed = bound_train_reports([honest, honest, honest, liar], limits)
    assert list(changed) == [3]
    assert changed[3].startswith("TrainResponse: the mean absolute error was 1e+09 and is replaced")
    assert (bounded.num_samples, bounded.num_tested[0], bounded.num_correct[0]) == (200, 80, 40)
    assert bounded.error_sums is not None
    assert bounded.error_sums.tolist() == [160.0], "a mean error of 2"
    assert bounded.reports["total_weight"].tolist() == [20.0]
    unlimited, _ = bound_train_reports([honest, honest, honest, liar], Limits())
    assert unlimited[3].num_samples == 9_000_000, "counts only with count_factor"


def test_plausible_responses_are_not_changed() -> None:
    responses = [make_response(num_samples=num, losses=np.array([0.1 * num])) for num in range(9)]
    bounded, changed = bound_train_reports(responses, Limits(count_factor=10.0))
    assert changed == {}
    assert all(new is old for new, old in zip(bounded, responses, strict=True))


def test_client_with_a_lying_loss_does_not_always_win_power_of_choice() -> None:
    rule, num = PowerOfChoice(participation=0.25, candidates=8), 8
    rng, wins = np.random.default_rng(0), 0
    for _ in range(100):
        losses = rng.uniform(0.5, 2.0, size=num)
        losses[3] = 1e9
        values = [{"candidate_loss": losses[k : k + 1]} for k in range(num)]
        bounded, changed = bound_survey_values(values, rule, Limits(num_classes=10))
        assert list(changed) == [3]
        known = {"candidate_loss": np.stack([each["candidate_loss"] for each in bounded])}
        clients = np.arange(num)
        roster = Roster(0, clients, np.ones(num), np.zeros(num, int), known, surveyed=clients)
        wins += 3 in rule.choose(roster, rng)
    assert wins < 30, "two of eight are chosen; the median is rarely one of the largest"


def test_survey_values_that_are_not_magnitudes_are_not_changed() -> None:
    values = [{"label_mix": numbers(0.0, 1.0)}, {"label_mix": numbers(1e9, 0.5)}] * 3
    assert bound_survey_values(values, Dpcs(), Limits()) == (values, {})


def test_lying_client_does_not_make_the_losses_of_a_group_insufficient() -> None:
    """Two honest clients have a small loss on both models; the liar would open a third model."""
    values = [{"model_losses": numbers(0.2, 0.4)}] * 2 + [{"model_losses": numbers(1e9, 1e9)}]
    bounded, changed = bound_survey_values(values, TwoMixtures(), CLASSES)
    assert list(changed) == [2]
    assert bounded[2]["model_losses"].tolist() == [0.2, 0.4]


def test_long_uploads_are_shortened_to_a_multiple_of_the_median_norm() -> None:
    def respond(length: float, **more: Floats32) -> TrainResponse:
        return make_response(uploads={"objective.change": P4 * np.float32(length), **more})

    responses = [respond(length) for length in (1.0, 2.0, 3.0, 19.0, 1e5)]  # norms are twice these
    bounded, changed = bound_train_reports(responses, Limits())
    lengths = [float(each.uploads["objective.change"][0, 0]) for each in bounded]
    assert lengths == pytest.approx([1.0, 2.0, 3.0, 19.0, 30.0])
    assert changed == {
        4: "TrainResponse: objective.change has norm 2e+05 and is shortened to 60, 10 times the "
        "median."
    }
    two, changed = bound_train_reports(responses[3:], Limits())
    assert (len(two), changed) == (2, {}), "two clients have no usual norm"
    masses = [make_response(uploads={"bank.label_mass": P4 * size}) for size in (1, 1, 1, 99)]
    assert bound_train_reports(masses, Limits())[1] == {}
