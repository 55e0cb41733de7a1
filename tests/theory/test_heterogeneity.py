import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.theory import (
    dds_ratios,
    heterogeneity_score,
    mismatch,
    mixture_variance,
    retention,
    weighted_heterogeneity,
)
from theory.cases import CLIENTS, SPREAD, THIRDS, Case, cases

PROBS = CLIENTS[0]
RATIOS = dds_ratios(PROBS, THIRDS, SPREAD, 0.5, 0.15, 0.25)


def test_retention_matches_worked_example():  # worked example 14.7
    assert retention(0.5, 5) == pytest.approx(0.19375, abs=1e-12)
    assert retention(1, 5) == 0.0


def test_retention_is_a_mean_over_ticks():  # 13.5: without 1/T it would be 1.9412 here
    assert retention(0.3, 5) == pytest.approx(1.9412 / 5, abs=1e-5)


@given(st.floats(1e-3, 1), st.integers(1, 40))
def test_retention_equals_the_mean_of_powers(budget, ticks):
    literal = sum((1 - budget) ** t for t in range(1, ticks + 1)) / ticks
    assert retention(budget, ticks) == pytest.approx(literal, rel=1e-9, abs=1e-15)
    assert 0 <= retention(budget, ticks) < 1


def test_tiny_budget_retains_almost_everything():
    assert retention(1e-12, 5) == pytest.approx(1 - 3e-12, abs=1e-15)


def test_heterogeneity_score_parts_match_worked_example():  # worked example 14.7
    assert weighted_heterogeneity(PROBS, RATIOS, SPREAD) == pytest.approx(0.243016, abs=1e-6)
    assert mixture_variance(PROBS, RATIOS, 0.5) == pytest.approx(0.660455, abs=1e-6)
    assert mismatch(PROBS, RATIOS, THIRDS, 0.5) == pytest.approx(0.080722, abs=1e-6)
    score = heterogeneity_score(PROBS, RATIOS, THIRDS, SPREAD, 0.5, 5)
    assert score == pytest.approx(0.764378, abs=1e-6)


def test_heterogeneity_score_with_even_ratios_matches_worked_example():  # worked example 14.7
    even = [0.5, 0.5, 0.5]
    assert weighted_heterogeneity(PROBS, even, SPREAD) == pytest.approx(0.3, abs=1e-6)
    assert mixture_variance(PROBS, even, 0.5) == pytest.approx(0.655, abs=1e-6)
    assert mismatch(PROBS, even, THIRDS, 0.5) == pytest.approx(0.046667, abs=1e-6)
    score = heterogeneity_score(PROBS, even, THIRDS, SPREAD, 0.5, 5)
    assert score == pytest.approx(0.840250, abs=1e-6)


@pytest.mark.parametrize(
    ("probs", "ratios", "expected"),
    [
        (CLIENTS[0], (0.535193, 0.552336, 0.333514), 0.764378),
        (CLIENTS[1], (1, 1, 0.375), 1.500833),
        (CLIENTS[2], (0.626838, 0.560662, 0.312500), 0.889977),
    ],
)
def test_scores_of_three_clients_match_worked_example(
    probs, ratios, expected
):  # worked example 14.8
    own = dds_ratios(probs, THIRDS, SPREAD, 0.5, 0.15, 0.25)
    np.testing.assert_allclose(own, ratios, atol=1e-6)
    score = heterogeneity_score(probs, own, THIRDS, SPREAD, 0.5, 5)
    assert score == pytest.approx(expected, abs=1e-6)


@given(cases(), st.floats(0.1, 10), st.floats(0, 1), st.integers(1, 20))
def test_heterogeneity_score_is_the_sum_of_its_parts(case: Case, grad_bound, noise, ticks):
    probs, importance, heterogeneity, budget = case
    ratios = dds_ratios(*case, slope=0.15, offset=0.25)
    gamma = retention(budget, ticks)
    parts = (
        noise,
        (1 - gamma) * weighted_heterogeneity(probs, ratios, heterogeneity) / budget,
        2 * grad_bound * gamma * mixture_variance(probs, ratios, budget) / (1 - (1 - budget) ** 2),
        2 * grad_bound * gamma * mismatch(probs, ratios, importance, budget),
    )
    score = heterogeneity_score(
        probs, ratios, importance, heterogeneity, budget, ticks, grad_bound, noise
    )
    assert min(parts) >= 0
    assert score == pytest.approx(sum(parts))


def test_score_with_a_budget_of_one_is_the_weighted_heterogeneity():
    # Nothing is retained: gamma = 0.
    ones = [1.0, 1.0, 1.0]
    score = heterogeneity_score(PROBS, ones, THIRDS, SPREAD, 1.0, 5)
    assert score == pytest.approx(0.5 * 0.1 + 0.3 * 0.5 + 0.2 * 2.0)


@pytest.mark.parametrize(
    "bad",
    [
        {"probs": [0.5, -0.3, 0.2]},
        {"ratios": [0.5, 0.5, 1.5]},
        {"ratios": [0.5, 0.5]},
        {"importance": [1.0]},
        {"heterogeneity": [0.1, 0.5, -1]},
        {"heterogeneity": [0.1, 0.5, float("nan")]},
        {"budget": 0.0},
        {"budget": 1.01},
        {"ticks": 0},
        {"ticks": 2.5},
        {"grad_bound": 0.0},
        {"noise": -0.1},
    ],
)
def test_invalid_heterogeneity_inputs_are_rejected(bad):
    good = {
        "probs": PROBS,
        "ratios": RATIOS,
        "importance": THIRDS,
        "heterogeneity": SPREAD,
        "budget": 0.5,
        "ticks": 5,
    }
    with pytest.raises(ConfigError, match=next(iter(bad))):
        heterogeneity_score(**good | bad)
