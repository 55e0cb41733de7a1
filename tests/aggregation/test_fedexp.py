import numpy as np
import pytest

from thalweg.aggregation import FedExp

DELTAS = np.array([[1, 0], [0, 1], [-0.5, 0.5]], dtype=np.float32)
ZERO = np.zeros(2, dtype=np.float32)


@pytest.mark.parametrize(
    ("weights", "mean", "length"),
    [([1 / 3] * 3, [0.166667, 0.5], 1.494619), ([0.5, 0.3, 0.2], [0.4, 0.4], 1.401869)],
)
def test_steps_of_a_worked_example(weights, mean, length):
    rule = FedExp(floor=0.001)
    _, moved = rule.step(rule.init(2), ZERO, DELTAS, np.array(weights))
    assert moved.tolist() == pytest.approx([length * part for part in mean], abs=2e-6)


def test_equal_updates_give_an_ordinary_step():
    rule = FedExp()
    _, moved = rule.step(rule.init(2), ZERO, np.ones((3, 2), dtype=np.float32), np.full(3, 1 / 3))
    assert moved.tolist() == pytest.approx([1.0, 1.0])


def test_evaluated_model_is_the_mean_of_the_last_two_models():
    rule = FedExp()
    state = rule.init(2)
    assert rule.eval_model(state, ZERO).tolist() == [0.0, 0.0]
    state, moved = rule.step(state, ZERO, np.ones((1, 2), dtype=np.float32), np.ones(1))
    assert rule.eval_model(state, moved).tolist() == [0.5, 0.5]
