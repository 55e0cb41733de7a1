"""Exact, noisy and Bayesian forecasts of states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats
from thalweg.forecast import Bayesian, Exact, Forecast, Noisy
from thalweg.forecast.bayesian import StateCounts

TRUTH = np.array([0.5, 0.3, 0.2])
HISTOGRAMS = np.array([[0.7, 0.2, 0.1], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])
IMPORTANCE = np.full(3, 1 / 3)


class FixedNoise:
    """A generator that returns the given noise."""

    def __init__(self, noise: list[float]) -> None:
        self.noise = np.array(noise)

    def uniform(self, low: float, high: float, size: int) -> Floats:
        assert low == -high
        assert len(self.noise) == size
        return self.noise


def predict(oracle: Forecast, state: Any) -> Floats:
    return oracle.outlook(state, HISTOGRAMS, IMPORTANCE).probs


def predict_with_noise(oracle: Noisy, truth: list[float], noise: list[float]) -> Floats:
    rng: Any = FixedNoise(noise)
    return predict(oracle, oracle.init(np.array(truth), rng))


def test_exact_oracle_always_predicts_the_truth() -> None:
    oracle = Exact()
    state = oracle.init(TRUTH, np.random.default_rng(0))
    state = oracle.observe(state, np.array([2, 2, 2, 2]))
    assert predict(oracle, state).tolist() == TRUTH.tolist()


def test_noisy_oracle_adds_noise_clips_and_normalises() -> None:
    expected = (0.545455, 0.242424, 0.212121)
    noise = [0.04, -0.06, 0.01]
    assert predict_with_noise(Noisy(), [0.5, 0.3, 0.2], noise) == pytest.approx(expected, abs=1e-6)
    expected = (0.551020, 0.448980, 0.0)
    noise = [0.04, -0.06, -0.03]
    got = predict_with_noise(Noisy(), [0.5, 0.5, 0.0], noise)
    assert got == pytest.approx(expected, abs=1e-6)
    assert abs(got - [0.5, 0.5, 0.0]).sum() == pytest.approx(0.102041, abs=1e-6)


def test_noise_reaches_impossible_states_unless_perturb_support_only() -> None:
    truth, noise = [0.5, 0.5, 0.0], [0.0, 0.0, 0.25]
    assert predict_with_noise(Noisy(), truth, noise).tolist() == [0.4, 0.4, 0.2]
    left_alone = Noisy(perturb_support_only=True)
    assert predict_with_noise(left_alone, truth, noise).tolist() == [0.5, 0.5, 0.0]


def test_noisy_oracle_predicts_the_truth_if_all_probabilities_are_clipped() -> None:
    assert predict_with_noise(Noisy(), [0.5, 0.5, 0.0], [-1.0, -0.5, -0.1]).tolist() == [
        0.5,
        0.5,
        0.0,
    ]


def test_noise_is_drawn_once_and_bounded() -> None:
    truth = np.full(50, 1 / 50)
    for seed in range(20):
        oracle = Noisy(noise=0.01)
        state = oracle.init(truth, np.random.default_rng(seed))
        first = predict(oracle, state)
        assert (
            abs(first / first.sum() - truth).max() < 0.01 + 0.005
        )  # the sum moves a little as well
        later = oracle.observe(state, np.array([0, 1]))
        assert predict(oracle, later).tolist() == first.tolist()


def test_noise_differs_between_clients() -> None:
    one, two = (Noisy().init(TRUTH, np.random.default_rng(seed)).probs.tolist() for seed in (0, 1))
    assert one != two


def test_noisy_oracle_without_noise_predicts_the_truth() -> None:
    state = Noisy(noise=0.0).init(TRUTH, np.random.default_rng(0))
    assert state.probs == pytest.approx(TRUTH)


def test_bayesian_oracle_adds_counts_to_its_prior() -> None:
    oracle = Bayesian()
    state = oracle.init(TRUTH, np.random.default_rng(0))
    assert predict(oracle, state).tolist() == pytest.approx([1 / 3] * 3)
    state = oracle.observe(state, np.array([0, 1, 0]))
    state = oracle.observe(state, np.array([0]))
    assert state.counts.tolist() == [3, 1, 0]
    expected = (0.571429, 0.285714, 0.142857)
    assert predict(oracle, state) == pytest.approx(expected, abs=1e-6)


def test_bayesian_oracle_uses_only_the_number_of_states() -> None:
    states = [Bayesian().init(truth, np.random.default_rng(0)) for truth in (TRUTH, TRUTH[::-1])]
    assert states[0].counts.tolist() == states[1].counts.tolist() == [0, 0, 0]


def test_large_prior_slows_down_the_bayesian_oracle() -> None:
    seen = StateCounts(np.array([8, 0, 0]))
    assert predict(Bayesian(prior=0.5), seen)[0] == pytest.approx(8.5 / 9.5)
    assert predict(Bayesian(prior=100.0), seen)[0] == pytest.approx(108 / 308)


def test_bayesian_oracle_converges_to_the_truth() -> None:
    oracle, rng = Bayesian(), np.random.default_rng(0)
    state = oracle.init(TRUTH, rng)
    for _ in range(400):
        state = oracle.observe(state, rng.choice(3, size=5, p=TRUTH))
    # 2000 visits: standard deviation at most 0.011.
    assert abs(predict(oracle, state) - TRUTH).max() < 5 * 0.011


@pytest.mark.parametrize(
    ("proxy", "distance"),
    [
        ("l1", 0.733333),
        ("l2", 0.454606),
        ("l2_squared", 0.206667),
        ("kl", 0.296794),
        ("js", 0.074806),
    ],
)
def test_heterogeneity_is_the_distance_to_a_balanced_state(proxy: Any, distance: float) -> None:
    for oracle in (Exact(proxy=proxy), Noisy(proxy=proxy), Bayesian(proxy=proxy)):
        state: Any = oracle.init(TRUTH, np.random.default_rng(0))
        outlook = oracle.outlook(state, HISTOGRAMS, IMPORTANCE)
        assert outlook.heterogeneity[0] == pytest.approx(distance, abs=1e-6)
        assert outlook.heterogeneity[2] == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("oracle", "bad"),
    [
        (Exact, {"proxy": "kll"}),
        (Noisy, {"noise": -0.1}),
        (Noisy, {"noise": 1.1}),
        (Noisy, {"noise": float("nan")}),
        (Noisy, {"proxy": "l3"}),
        (Bayesian, {"prior": 0.0}),
        (Bayesian, {"prior": float("inf")}),
        (Bayesian, {"proxy": ""}),
    ],
    ids=str,
)
def test_invalid_parameters_of_oracles_are_rejected(oracle: Any, bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        oracle(**bad)
