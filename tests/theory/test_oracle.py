import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.theory import b_term, dds_ratios, heterogeneity_score, oracle_gap, saw_weights
from theory.cases import CLIENTS, SPREAD, THIRDS, distributions

TUNING = {"dds_slope": 0.15, "dds_offset": 0.25, "saw_slope": 1.0, "saw_offset": 0.5}
TRUTH = np.array(CLIENTS)
FORECAST = np.array([[0.4, 0.4, 0.2], [0.2, 0.1, 0.7], [0.3, 0.3, 0.4]])
AVAILABILITY = np.array([0.2, 0.3, 0.25])


def compute_gap(forecast, truth=TRUTH, **more):
    return oracle_gap(
        truth, forecast, THIRDS, SPREAD, 0.5, AVAILABILITY[: len(truth)], 5, **TUNING | more
    )


def test_perfect_forecast_has_zero_gap():
    result = compute_gap(TRUTH)
    assert result.gap == 0
    assert result.oracle_error == 0
    np.testing.assert_allclose(result.effective_budgets, 0.5, atol=1e-12)


def test_forecast_errors_match_hand_computed_values():
    result = compute_gap(FORECAST)
    np.testing.assert_allclose(result.errors, [0.2, 0.2, 2 / 15], atol=1e-12)
    assert result.oracle_error == pytest.approx(0.2 + 0.2 + 2 / 15)


def test_gap_of_one_client_matches_a_hand_computed_value():
    # A single client has weight 1: B = noise + 5/3 s, with predicted ratios in the true world.
    result = compute_gap(FORECAST[:1], TRUTH[:1], noise=0.01)
    ratios = dds_ratios(FORECAST[0], THIRDS, SPREAD, 0.5, 0.15, 0.25)
    score = heterogeneity_score(TRUTH[0], ratios, THIRDS, SPREAD, 0.5, 5, noise=0.01)
    assert result.achieved == pytest.approx(0.01 + 5 / 3 * score)
    assert result.effective_budgets[0] == pytest.approx(float(TRUTH[0] @ ratios))
    assert result.effective_budgets[0] != pytest.approx(0.5, abs=1e-3)


def test_ideal_value_matches_the_b_term_of_the_worked_example():  # worked example 14.10
    result = oracle_gap(TRUTH, FORECAST, THIRDS, SPREAD, 0.5, [0.2] * 3, 5, noise=0.01, **TUNING)
    # There the weights were made from scores without noise; with it they move by a few 1e-5.
    assert result.ideal == pytest.approx(1.734129, abs=1e-4)


def test_achieved_value_matches_a_step_by_step_computation():
    ratios = [dds_ratios(probs, THIRDS, SPREAD, 0.5, 0.15, 0.25) for probs in FORECAST]

    def scores(world):
        return [
            heterogeneity_score(probs, own, THIRDS, SPREAD, 0.5, 5)
            for probs, own in zip(world, ratios, strict=True)
        ]

    weights = saw_weights(scores(FORECAST), AVAILABILITY, 1.0, 0.5)  # the server uses the forecast
    achieved = b_term(weights, AVAILABILITY, scores(TRUTH), 0.0)
    result = compute_gap(FORECAST)
    assert result.achieved == pytest.approx(achieved)
    assert result.gap == abs(result.achieved - result.ideal)


def test_gap_is_proportional_to_the_forecast_error():
    # Theorem 2: linear in the error, where all scores and weights stay positive.
    direction = FORECAST - TRUTH
    results = [compute_gap(TRUTH + step * direction) for step in (0.1, 0.01, 0.001)]
    rates = [result.gap / result.oracle_error for result in results]
    assert rates[1] == pytest.approx(rates[0], rel=0.3)
    assert rates[2] == pytest.approx(rates[1], rel=0.03)


@given(st.lists(distributions(3), min_size=3, max_size=3), st.floats(0.05, 1))
def test_errors_and_effective_budgets_stay_in_range(forecast, budget):
    result = oracle_gap(TRUTH, forecast, THIRDS, SPREAD, budget, AVAILABILITY, 5, **TUNING)
    assert result.gap >= 0
    assert ((result.errors >= 0) & (result.errors <= 2)).all()
    assert ((result.effective_budgets >= 0) & (result.effective_budgets <= 1 + 1e-12)).all()


def test_zero_probability_rule_sets_the_ratio_of_unforecast_states():
    truth, forecast = [[0.5, 0.5, 0.0]], [[0.0, 0.5, 0.5]]
    spent = {
        rule: compute_gap(forecast, truth, zero_prob_rule=rule).effective_budgets[0]
        for rule in ("zero", "budget", "extend")
    }
    assert spent["zero"] < spent["budget"] < spent["extend"]
    assert spent["budget"] - spent["zero"] == pytest.approx(0.25)


def test_budgets_may_differ_between_clients():
    result = oracle_gap(TRUTH, TRUTH, THIRDS, SPREAD, [0.2, 0.5, 1.0], AVAILABILITY, 5, **TUNING)
    np.testing.assert_allclose(result.effective_budgets, [0.2, 0.5, 1.0], atol=1e-12)


@pytest.mark.parametrize(
    ("truth", "forecast", "message"),
    [
        (TRUTH, FORECAST[:2], "same shape"),
        (TRUTH[0], FORECAST[0], "row per client"),
        (TRUTH, -FORECAST, r"predicted_probs\[0\]"),
        (np.full((3, 3), np.nan), FORECAST, r"true_probs\[0\]"),
    ],
)
def test_invalid_worlds_are_rejected(truth, forecast, message):
    with pytest.raises(ConfigError, match=message):
        oracle_gap(truth, forecast, THIRDS, SPREAD, 0.5, AVAILABILITY, 5, **TUNING)
