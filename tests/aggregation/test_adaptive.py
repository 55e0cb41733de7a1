import numpy as np
import pytest

from thalweg.aggregation import Adaptive

MODELS = ((1, 0), (1, 1), (1.2, 1), (3, -1))


@pytest.mark.parametrize(
    ("decay", "rates"),
    [
        ("inverse_round", [0.1, 0.05, 0.024094, 0.1]),
        ("none", [0.1, 0.1, 0.072281, 0.1]),
    ],
)
def test_learning_rates_of_a_worked_example(decay, rates):
    rule = Adaptive(decay=decay)
    state, found = rule.init(2), []
    for model in MODELS:
        state = rule.update_state(state, np.array(model, dtype=np.float32))
        found.append(0.1 * rule.lr_scale(state))
    assert found == pytest.approx(rates, abs=2e-6)


def test_variances_of_a_worked_example():
    rule = Adaptive()
    state, found = rule.init(2), []
    for t, model in enumerate(MODELS, start=1):
        state = rule.update_state(state, np.array(model, dtype=np.float32))
        found.append(state.variance / (1 - 0.5**t))
    assert found == pytest.approx([0.5, 0.5, 0.257460, 1.988121], abs=2e-6)


def test_learning_rate_is_unchanged_before_the_first_step():
    assert Adaptive().lr_scale(Adaptive().init(2)) == 1.0


def test_ratio_is_one_for_a_model_that_never_changes():
    rule = Adaptive(decay="none")
    state = rule.init(2)
    for _ in range(4):
        state = rule.update_state(state, np.zeros(2, dtype=np.float32))
        assert rule.lr_scale(state) == 1.0


def test_model_moves_by_the_weighted_mean_of_the_updates():
    deltas = np.array([[1, 0], [0, 1]], dtype=np.float32)
    rule = Adaptive()
    _, moved = rule.step(rule.init(2), np.zeros(2, dtype="f4"), deltas, np.array([0.25, 0.75]))
    assert moved.tolist() == [0.25, 0.75]
