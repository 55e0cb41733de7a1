from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contracts.examples import some_memory_context, some_outlook
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Outlook
from thalweg.memory import Dds

RATIOS = (0.535193, 0.552336, 0.333514)  # of the outlook in contracts.examples, budget 1/2


def num_renewed(policy: Dds, state: int, *, num_new: int = 500, seed: int = 0) -> int:
    intake = some_memory_context(500, 500, num_new, state)
    _, kept = policy.keep(None, intake, np.random.default_rng(seed))
    return int((kept >= 500).sum())


def ratios(policy: Dds, outlook: Outlook) -> Floats:
    return policy.predict_renewal(None, some_memory_context(10, 10, 10, outlook=outlook))


def test_a_memory_of_five_hundred_renews_268_276_or_167() -> None:
    assert [num_renewed(Dds(), state) for state in range(3)] == [268, 276, 167]


def test_the_ratios_follow_what_the_client_expects() -> None:
    assert ratios(Dds(), some_outlook()) == pytest.approx(RATIOS, abs=1e-6)
    other = some_outlook(probs=(0.1, 0.1, 0.8))
    assert ratios(Dds(), other) == pytest.approx((1, 1, 0.375), abs=1e-6)


def test_the_average_renewal_is_the_budget() -> None:
    for budget in (0.05, 0.3, 0.5, 0.9, 1.0):
        outlook = some_outlook()
        assert ratios(Dds(budget=budget), outlook) @ outlook.probs == pytest.approx(budget)


def test_a_state_can_be_left_out_or_taken_whole() -> None:
    policy = Dds(exact=True)  # with ratios (0.676026, 0.539956, 0)
    assert [num_renewed(policy, state) for state in range(3)] == [338, 270, 0]
    assert [num_renewed(Dds(budget=1.0), state) for state in range(3)] == [500, 500, 500]


def test_rounding_at_random_renews_the_ratio_on_average() -> None:
    policy = Dds(stochastic_rounding=True)
    renewed = [num_renewed(policy, 0, seed=seed) for seed in range(1000)]
    assert set(renewed) == {267, 268}
    # 267.5965 in the mean; standard deviation 0.0155.
    assert abs(np.mean(renewed) - 500 * RATIOS[0]) < 5 * 0.0155


@pytest.mark.parametrize(("rule", "ratio"), [("extend", 0.772029), ("zero", 0.0), ("budget", 0.5)])
def test_a_state_thought_impossible_gets_what_the_rule_says(rule: Any, ratio: float) -> None:
    surprised = some_outlook(probs=(0.6, 0.4, 0.0), heterogeneity=(0.1, 0.5, 0.2))
    expected = (0.495598, 0.506602, ratio)
    assert ratios(Dds(zero_prob_rule=rule), surprised) == pytest.approx(expected, abs=1e-6)


def test_no_more_is_renewed_or_announced_than_arrives() -> None:
    assert num_renewed(Dds(), 0, num_new=100) == 100
    few = some_memory_context(500, 500, 200)
    assert Dds().predict_renewal(None, few) == pytest.approx((0.4, 0.4, RATIOS[2]), abs=1e-6)


def test_ratios_of_one_policy_are_not_those_of_another() -> None:
    # They are remembered by value, so equal outlooks of different policies must not be mixed up.
    outlook = some_outlook()
    first = ratios(Dds(), outlook)
    assert ratios(Dds(budget=0.3), outlook) @ outlook.probs == pytest.approx(0.3)
    assert ratios(Dds(), outlook).tolist() == first.tolist()


def test_an_outlook_in_single_precision_is_understood() -> None:
    parts: Any = [part.astype(np.float32) for part in some_outlook()]
    single = Outlook(*parts)
    assert ratios(Dds(), single) == pytest.approx(RATIOS, abs=1e-6)


def test_in_the_long_run_the_memory_holds_probability_times_ratio() -> None:
    policy, outlook, rng = Dds(), some_outlook(), np.random.default_rng(0)
    held, total = np.zeros(50, dtype=np.int64), np.zeros(3)  # the state each kept sample is of
    visited = rng.choice(3, size=10_000, p=outlook.probs).tolist()
    for state in visited:
        intake = some_memory_context(50, 50, 50, state, outlook)
        _, kept = policy.keep(None, intake, rng)
        held = np.concatenate([held, np.full(50, state)])[kept]
        total += np.bincount(held, minlength=3)
    # Rounded to 27, 28 and 17 of 50. A share varies by about 0.3 and half of it is forgotten in a
    # tick, so that 10,000 ticks tell as much as 3,300 free ones: standard deviation 0.005.
    long_run = (0.535193, 0.331402, 0.133406)
    assert total / total.sum() == pytest.approx(long_run, abs=5 * 0.005)


@pytest.mark.parametrize(
    "bad",
    [
        {"budget": 0.0},
        {"budget": 1.01},
        {"budget": float("nan")},
        {"slope": float("nan")},
        {"offset": float("inf")},
        {"ticks": 0},
        {"grad_bound": 0.0},
        {"grad_bound": float("inf")},
        {"zero_prob_rule": "extended"},
    ],
    ids=str,
)
def test_impossible_values_are_refused_where_the_policy_is_made(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Dds(**bad)
