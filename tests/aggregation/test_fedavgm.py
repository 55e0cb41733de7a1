import numpy as np
import pytest

from thalweg.aggregation import FedAvgM, Step
from thalweg.core.errors import ConfigError


def test_momentum_accumulates_updates_and_the_learning_rate_scales_the_step():
    rule, model = FedAvgM(momentum=0.9, lr=0.5), np.zeros(1, dtype=np.float32)
    state = rule.init(1)
    for expected in (0.5, 0.5 + 0.95, 0.5 + 0.95 + 1.355):  # momentum 1, 1.9, 2.71
        state, model = rule.step(state, model, np.ones((1, 1), dtype="f4"), np.ones(1))
        assert model[0] == pytest.approx(expected)


def test_without_momentum_it_is_fedavg():
    rng = np.random.default_rng(0)
    model, deltas = rng.normal(size=4).astype("f4"), rng.normal(size=(3, 4)).astype("f4")
    weights, rule = np.array([0.2, 0.3, 0.5]), FedAvgM(momentum=0.0)
    _, moved = rule.step(rule.init(4), model, deltas, weights)
    assert moved.tolist() == Step().step(None, model, deltas, weights)[1].tolist()


def test_a_momentum_of_one_is_rejected():
    with pytest.raises(ConfigError, match="momentum must lie"):
        FedAvgM(momentum=1.0)
