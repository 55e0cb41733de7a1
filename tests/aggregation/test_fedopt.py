import math

import numpy as np
import pytest

from thalweg.aggregation import FedAdagrad, FedAdam, FedYogi
from thalweg.core.errors import ConfigError

TAU = 0.001


def run_steps(rule, updates):
    """Return the steps of a model with one parameter, and the final state."""
    state, model, made = rule.init(1), np.zeros(1, dtype=np.float32), []
    for update in updates:
        state, moved = rule.step(state, model, np.array([[update]], dtype="f4"), np.ones(1))
        made.append(float(moved[0] - model[0]))
        model = moved
    return made, state


def test_two_fedadam_steps_of_a_worked_example():
    made, state = run_steps(FedAdam(lr=0.01), [0.1, -0.3])
    v1 = 0.99 * TAU**2 + 0.01 * 0.01  # m = 0.01
    v2 = 0.99 * v1 + 0.01 * 0.09  # m = 0.9 * 0.01 - 0.1 * 0.3 = -0.021
    expected = [0.01 * 0.01 / (math.sqrt(v1) + TAU), -0.01 * 0.021 / (math.sqrt(v2) + TAU)]
    assert made == pytest.approx(expected, rel=1e-5)
    assert state.mean[0] == pytest.approx(-0.021)
    assert state.square[0] == pytest.approx(v2)


def test_the_second_moment_of_fedyogi_grows_and_shrinks_by_a_share_of_the_squared_update():
    made, state = run_steps(FedYogi(lr=0.01, adaptivity=0.2), [0.1, 0.5])
    v1 = 0.04 - 0.01 * 0.01  # the initial 0.04 exceeds the squared update: it decreases
    v2 = v1 + 0.01 * 0.25  # the squared update exceeds it: it grows
    expected = [0.01 * 0.01 / (math.sqrt(v1) + 0.2), 0.01 * 0.059 / (math.sqrt(v2) + 0.2)]
    assert made == pytest.approx(expected, rel=1e-5)
    assert state.square[0] == pytest.approx(v2)


def test_fedadagrad_steps_shrink_with_the_sum_of_squares():
    made, state = run_steps(FedAdagrad(lr=0.1), [1.0, 1.0, 1.0])
    expected = [0.1 / (math.sqrt(n + TAU**2) + TAU) for n in (1, 2, 3)]
    assert made == pytest.approx(expected, rel=1e-5)
    assert state.square[0] == pytest.approx(3.0)


@pytest.mark.parametrize("rule", [FedAdam(), FedYogi(), FedAdagrad()])
def test_moments_start_at_zero_and_at_the_square_of_the_adaptivity(rule):
    state = rule.init(2)
    assert state.mean.tolist() == [0, 0]
    assert state.square == pytest.approx([1e-6, 1e-6])


@pytest.mark.parametrize("rule", [FedAdam, FedYogi, FedAdagrad])
def test_invalid_fields_are_rejected(rule):
    with pytest.raises(ConfigError, match="adaptivity must be positive"):
        rule(adaptivity=0.0)
    with pytest.raises(ConfigError, match="beta_mean must lie"):
        rule(beta_mean=1.0)
    with pytest.raises(ConfigError, match="lr must be positive"):
        rule(lr=0.0)
