"""Estimates of state probabilities that forget."""

from __future__ import annotations

import numpy as np
import pytest

from thalweg.core.types import Floats, Ints
from thalweg.forecast import Bayesian, Growing
from thalweg.forecast.visits import DISCOUNTS, estimate_probs, observe_visits, start_recent

HALF = np.array([0.5, 0.5])


def log_loss(forecast: Bayesian, states: Ints, num_states: int) -> float:
    """Mean log loss of the predictions of each tick before it, observed tick by tick."""
    state = forecast.init(np.full(num_states, np.nan), np.random.default_rng(0))
    total = 0.0
    for seen in states.tolist():
        probs = forecast.outlook(state, np.eye(num_states), np.ones(num_states)).probs
        total -= float(np.log(probs[seen]))
        state = forecast.observe(state, np.array([seen]))
    return total / len(states)


def draw_regimes(num_ticks: int) -> Ints:
    """States 0 and 1 in the first half of each hundred ticks, 2 and 3 in the second."""
    rng = np.random.default_rng(1)
    return rng.integers(0, 2, num_ticks) + 2 * (np.arange(num_ticks) % 100 >= 50)


def test_one_visit_gives_all_discounts_the_same_counts_and_weights() -> None:
    recent = observe_visits(start_recent(2), np.ones(2), np.zeros(2, np.int64), np.array([1]))
    assert recent.counts.tolist() == [[0.0, 1.0]] * 3
    assert np.exp(recent.log_weights).tolist() == pytest.approx([0.25] * 4)  # all predicted 1/2


def test_second_visit_discounts_the_first_and_moves_weight_to_the_better_prediction() -> None:
    recent = observe_visits(start_recent(2), np.ones(2), np.zeros(2, np.int64), np.array([1, 1]))
    assert recent.counts[:, 1].tolist() == (1 + DISCOUNTS[1:]).tolist()
    # Before the second visit: 2/3 by all ticks, then (2/3 + 1) / 2, (5/6 + 1) / 2, (11/12 + 1) / 2.
    predicted = np.array([2 / 3, 5 / 6, 11 / 12, 23 / 24])
    assert np.exp(recent.log_weights) == pytest.approx(predicted / predicted.sum())


def test_mixture_of_equal_weights_is_the_mean_of_the_estimates() -> None:
    counts = np.array([0, 1])
    recent = observe_visits(start_recent(2), np.ones(2), np.zeros(2, np.int64), np.array([1]))
    mean, _ = estimate_probs(np.ones(2), counts, recent)
    assert mean[1] == pytest.approx(np.mean([2 / 3, 5 / 6, 11 / 12, 23 / 24]))


def test_the_weights_depend_only_on_the_order_of_the_visits() -> None:
    seen = np.array([0, 1, 1, 0, 1])
    whole = Bayesian(forgetting=True)
    at_once = whole.observe(whole.init(HALF, np.random.default_rng(0)), seen)
    one_by_one = whole.init(HALF, np.random.default_rng(0))
    for each in seen:
        one_by_one = whole.observe(one_by_one, np.array([each]))
    assert at_once.recent is not None
    assert one_by_one.recent is not None
    assert at_once.counts.tolist() == one_by_one.counts.tolist()
    assert at_once.recent.counts == pytest.approx(one_by_one.recent.counts)
    assert at_once.recent.log_weights == pytest.approx(one_by_one.recent.log_weights)


def test_forgetting_predicts_changing_probabilities_better() -> None:
    states = draw_regimes(600)
    counting, forgetting = (log_loss(Bayesian(forgetting=x), states, 4) for x in (False, True))
    assert counting > 1.3  # log 4 = 1.39: both halves are equally frequent
    assert forgetting < 1.15  # log 2 = 0.69 with known regimes


def test_forgetting_costs_at_most_log_four_in_total() -> None:
    states = np.random.default_rng(0).choice(3, 300, p=[0.6, 0.3, 0.1])
    counting, forgetting = (log_loss(Bayesian(forgetting=x), states, 3) for x in (False, True))
    assert 300 * (forgetting - counting) <= np.log(4) + 1e-9


def test_variance_of_the_counts_is_that_of_the_posterior() -> None:
    for forecast in (Bayesian(), Growing()):
        state = forecast.init(HALF, np.random.default_rng(0))
        if isinstance(forecast, Growing):
            for histogram in ([4, 0], [0, 4]):
                state, _ = forecast.recognise(state, np.array(histogram))
        state = forecast.observe(state, np.array([0, 0]))
        outlook = forecast.outlook(state, np.eye(2), HALF)
        assert outlook.variance is not None
        assert outlook.variance.tolist() == pytest.approx([0.75 * 0.25 / 5] * 2)


def test_growing_forgets_states_that_it_recognised() -> None:
    found: list[Floats] = []
    for forgetting in (False, True):
        forecast = Growing(forgetting=forgetting)
        state = forecast.init(np.ones(1), np.random.default_rng(0))
        for histogram in [[4, 0]] * 30 + [[0, 4]] * 10:
            state, name = forecast.recognise(state, np.array(histogram))
            state = forecast.observe(state, np.array([name]))
        found.append(forecast.outlook(state, np.eye(2), HALF).probs)
    counting, forgetting_probs = found
    assert counting[1] == pytest.approx(11 / 42)
    assert forgetting_probs[1] > 0.6
