import numpy as np
import pytest

from thalweg.aggregation import Buffered, PolynomialDiscount
from thalweg.core.errors import ConfigError


def test_a_step_is_the_mean_of_the_discounted_updates_of_several_rounds():
    rule, model = Buffered(size=4, lr=0.5), np.zeros(1, dtype=np.float32)
    factors = PolynomialDiscount().factor(np.array([0, 3]))  # 1 and 0.5
    state, same = rule.step(
        rule.init(1), model, np.array([[2], [4]], dtype="f4"), np.full(2, 0.5) * factors
    )
    assert same.tolist() == [0]
    assert (state.total.tolist(), state.num_updates) == ([4.0], 2)  # 2 + 0.5 * 4
    state, same = rule.step(state, model, np.array([[6]], dtype="f4"), np.ones(1))
    assert (same.tolist(), state.num_updates) == ([0.0], 3)
    state, moved = rule.step(state, model, np.array([[1], [5]], dtype="f4"), np.full(2, 0.5))
    assert moved == pytest.approx([0.5 * (4 + 6 + 6) / 5])
    assert (state.total.tolist(), state.num_updates) == ([0.0], 0)


def test_unequal_weights_keep_their_ratio_within_a_round():
    rule, model = Buffered(size=3), np.zeros(1, dtype=np.float32)
    state, _ = rule.step(rule.init(1), model, np.array([[8]], dtype="f4"), np.ones(1))
    _, moved = rule.step(state, model, np.array([[4], [0]], dtype="f4"), np.array([0.75, 0.25]))
    assert moved == pytest.approx([(8 + 2 * 0.75 * 4) / 3])


def test_with_a_size_of_one_every_round_is_a_step_of_fedavg():
    rule, model = Buffered(size=1), np.ones(1, dtype=np.float32)
    state, moved = rule.step(rule.init(1), model, np.array([[1], [3]], dtype="f4"), np.full(2, 0.5))
    assert moved.tolist() == [3.0]
    assert state.num_updates == 0


def test_a_size_of_zero_is_rejected():
    with pytest.raises(ConfigError, match="size must be at least 1"):
        Buffered(size=0)
