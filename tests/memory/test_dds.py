from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contracts.examples import some_memory_context, some_outlook
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Outlook
from thalweg.memory import Dds
from thalweg.theory import dds_ratios_exact

RATIOS = (0.535193, 0.552336, 0.333514)  # of the outlook in contracts.examples, budget 1/2


def num_renewed(policy: Dds, state: int, *, num_new: int = 500, seed: int = 0) -> int:
    context = some_memory_context(500, 500, num_new, state)
    _, kept = policy.keep(None, context, np.random.default_rng(seed))
    return int((kept >= 500).sum())


def ratios(policy: Dds, outlook: Outlook) -> Floats:
    return policy.predict_renewal(None, some_memory_context(10, 10, 10, outlook=outlook))


def test_the_number_of_renewed_samples_is_the_rounded_ratio_of_the_state() -> None:
    assert [num_renewed(Dds(), state) for state in range(3)] == [268, 276, 167]


def test_ratios_depend_on_the_predicted_state_probabilities() -> None:
    assert ratios(Dds(), some_outlook()) == pytest.approx(RATIOS, abs=1e-6)
    other = some_outlook(probs=(0.1, 0.1, 0.8))
    assert ratios(Dds(), other) == pytest.approx((1, 1, 0.375), abs=1e-6)


def test_the_expected_renewal_is_the_budget() -> None:
    for budget in (0.05, 0.3, 0.5, 0.9, 1.0):
        outlook = some_outlook()
        assert ratios(Dds(budget=budget), outlook) @ outlook.probs == pytest.approx(budget)


def test_ratios_can_be_zero_or_one() -> None:
    policy = Dds(exact=True)  # ratios (0.676026, 0.539956, 0)
    assert [num_renewed(policy, state) for state in range(3)] == [338, 270, 0]
    assert [num_renewed(Dds(budget=1.0), state) for state in range(3)] == [500, 500, 500]


def test_the_exact_solution_depends_on_ticks_and_gradient_bound() -> None:
    outlook = some_outlook()
    default = dds_ratios_exact(*outlook[:3], budget=0.5, ticks=5, grad_bound=1.0)
    assert ratios(Dds(exact=True), outlook) == pytest.approx(default)
    for ticks, grad_bound in ((1, 1.0), (5, 4.0)):
        expected = dds_ratios_exact(*outlook[:3], budget=0.5, ticks=ticks, grad_bound=grad_bound)
        assert expected != pytest.approx(default, abs=1e-3)
        policy = Dds(exact=True, ticks=ticks, grad_bound=grad_bound)
        assert ratios(policy, outlook) == pytest.approx(expected)


def test_slope_and_offset_change_the_scores() -> None:
    # With budget 1/2 the scores are (1/3 - slope d + offset) / (1 + probability); d = 0.1, 0.5, 2.
    scores = (np.array([1, 1, 1]) / 3 - 0.1 * np.array([0.1, 0.5, 2.0]) + 0.5) / [1.5, 1.3, 1.2]
    expected = 0.5 * scores / (scores @ [0.5, 0.3, 0.2])
    assert ratios(Dds(slope=0.1, offset=0.5), some_outlook()) == pytest.approx(expected)


def test_the_default_rule_extends_the_formula_to_states_of_probability_zero() -> None:
    outlook = some_outlook(probs=(0.6, 0.4, 0.0), heterogeneity=(0.1, 0.5, 0.2))
    assert ratios(Dds(), outlook)[2] == pytest.approx(0.772029, abs=1e-6)


def test_rounding_is_to_the_nearest_sample_by_default() -> None:
    assert {num_renewed(Dds(), 0, seed=seed) for seed in range(50)} == {268}


def test_stochastic_rounding_renews_the_exact_ratio_on_average() -> None:
    policy = Dds(stochastic_rounding=True)
    renewed = [num_renewed(policy, 0, seed=seed) for seed in range(1000)]
    assert set(renewed) == {267, 268}
    # 267.5965 in the mean; standard deviation 0.0155.
    assert abs(np.mean(renewed) - 500 * RATIOS[0]) < 5 * 0.0155


@pytest.mark.parametrize(("rule", "ratio"), [("extend", 0.772029), ("zero", 0.0), ("budget", 0.5)])
def test_a_state_of_predicted_probability_zero_follows_the_rule(rule: Any, ratio: float) -> None:
    outlook = some_outlook(probs=(0.6, 0.4, 0.0), heterogeneity=(0.1, 0.5, 0.2))
    expected = (0.495598, 0.506602, ratio)
    assert ratios(Dds(zero_prob_rule=rule), outlook) == pytest.approx(expected, abs=1e-6)


def test_renewal_and_its_prediction_are_limited_by_the_arrivals() -> None:
    assert num_renewed(Dds(), 0, num_new=100) == 100
    few = some_memory_context(500, 500, 200)
    assert Dds().predict_renewal(None, few) == pytest.approx((0.4, 0.4, RATIOS[2]), abs=1e-6)


def test_cached_ratios_are_separate_for_different_policies() -> None:
    # Ratios are cached by value: equal outlooks of different policies must not be mixed up.
    outlook = some_outlook()
    first = ratios(Dds(), outlook)
    assert ratios(Dds(budget=0.3), outlook) @ outlook.probs == pytest.approx(0.3)
    assert ratios(Dds(), outlook).tolist() == first.tolist()


def test_a_float32_outlook_gives_the_same_ratios() -> None:
    parts: Any = [part.astype(np.float32) for part in some_outlook()[:3]]
    single = Outlook(*parts)
    assert ratios(Dds(), single) == pytest.approx(RATIOS, abs=1e-6)


def test_the_long_run_memory_share_of_a_state_is_probability_times_ratio() -> None:
    policy, outlook, rng = Dds(), some_outlook(), np.random.default_rng(0)
    held, total = np.zeros(50, dtype=np.int64), np.zeros(3)  # the state of each kept sample
    states = rng.choice(3, size=10_000, p=outlook.probs).tolist()
    for state in states:
        context = some_memory_context(50, 50, 50, state, outlook)
        _, kept = policy.keep(None, context, rng)
        held = np.concatenate([held, np.full(50, state)])[kept]
        total += np.bincount(held, minlength=3)
    # Rounded to 27, 28 and 17 of 50. A share varies by about 0.3, and a tick replaces half of the
    # memory, so that 10,000 ticks are worth 3,300 independent ones: standard deviation 0.005.
    long_run = (0.535193, 0.331402, 0.133406)
    assert total / total.sum() == pytest.approx(long_run, abs=5 * 0.005)


@pytest.mark.parametrize(
    "bad",
    [
        {"budget": 0.0},
        {"budget": 1.01},
        {"budget": float("nan")},
        {"slope": float("nan")},
        {"slope": float("inf")},
        {"offset": float("inf")},
        {"offset": float("nan")},
        {"ticks": 0},
        {"grad_bound": 0.0},
        {"grad_bound": float("inf")},
        {"zero_prob_rule": "extended"},
    ],
    ids=str,
)
def test_invalid_parameters_are_rejected_at_construction(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Dds(**bad)


def test_parameters_at_the_ends_of_their_ranges_are_accepted() -> None:
    # The scores are (1/3 - 1) / (1 + probability) < 0, but a budget of 1 renews every sample.
    policy = Dds(budget=1.0, slope=0.0, offset=-1.0, ticks=1)
    assert ratios(policy, some_outlook()).tolist() == [1, 1, 1]


def test_dds_declares_that_it_uses_the_forecast() -> None:
    assert Dds.uses_forecast  # otherwise it receives a uniform outlook
