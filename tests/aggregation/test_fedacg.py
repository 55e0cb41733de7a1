import numpy as np
import pytest
import torch

from thalweg.aggregation import FedAcg, HasEvalModel
from thalweg.aggregation.fedacg import Momentum
from thalweg.core.errors import ConfigError
from thalweg.local import Batch, Proximal

BATCH = Batch(torch.zeros(1, 1, 1), torch.tensor([[0]]), torch.ones(1, 1))


def constant_logits(params, x):
    return torch.zeros(1, 1, 2, dtype=torch.float64) + 0 * params.sum()


def train_scalar(start, strength, lr=0.1, num_steps=2):
    """Train a client with the gradient 2 (y - 3) and a proximal term around its start."""
    y = torch.tensor([[start]], dtype=torch.float64)
    memo = {"start": y}
    for _ in range(num_steps):
        here = y.clone().requires_grad_()
        loss = Proximal(strength).loss(constant_logits, here, BATCH, memo)
        (pull,) = torch.autograd.grad(loss.sum(), here)
        y = y - lr * (2 * (y - 3) + pull)
    return float(y)


def test_scalar_worked_example():
    rule, state = FedAcg(0.85), Momentum(np.array([0.4], dtype=np.float32))
    start = np.array([1.34], dtype=np.float32)  # the look-ahead 1 + 0.85 * 0.4
    assert rule.eval_model(state, start)[0] == pytest.approx(1.0, abs=1e-6)
    y = train_scalar(1.34, strength=0.01)
    assert y == pytest.approx(1.937268, abs=1e-6)
    delta = np.array([[y - 1.34]], dtype=np.float32)
    after, ahead = rule.step(state, start, delta, np.array([1.0]))
    assert after.values[0] == pytest.approx(0.937268, abs=1e-6)
    assert rule.eval_model(after, ahead)[0] == pytest.approx(1.937268, abs=1e-6)
    assert ahead[0] == pytest.approx(1.937268 + 0.85 * 0.937268, abs=1e-6)


def test_evaluated_model_is_the_mean_of_the_clients_models():
    rng = np.random.default_rng(0)
    rule, ahead = FedAcg(), rng.normal(size=5).astype(np.float32)
    state = rule.init(5)
    weights = np.array([0.25, 0.75])
    for _ in range(4):
        deltas = rng.normal(size=(2, 5)).astype(np.float32)
        mean = weights @ (ahead + deltas)
        state, ahead = rule.step(state, ahead, deltas, weights)
        np.testing.assert_allclose(rule.eval_model(state, ahead), mean, atol=1e-5)


def test_zero_momentum_gives_a_plain_step():
    rule, model = FedAcg(0.0), np.array([1.0, 2.0], dtype=np.float32)
    state, moved = rule.step(rule.init(2), model, np.ones((1, 2), dtype="f4"), np.array([1.0]))
    assert moved.tolist() == [2.0, 3.0]
    assert rule.eval_model(state, moved).tolist() == [2.0, 3.0]


def test_sent_and_evaluated_models_agree_before_the_first_step():
    rule, model = FedAcg(), np.array([1.0, 2.0], dtype=np.float32)
    assert isinstance(rule, HasEvalModel)
    assert rule.eval_model(rule.init(2), model).tolist() == [1.0, 2.0]


def test_momentum_of_one_is_rejected():
    with pytest.raises(ConfigError, match=r"momentum must lie in \[0, 1\)"):
        FedAcg(1.0)
