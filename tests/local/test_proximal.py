import pytest
import torch

from thalweg.core.errors import ConfigError
from thalweg.local import Batch, Proximal, TaskLoss

BATCH = Batch(torch.zeros(1, 2, 1), torch.tensor([[0, 1]]), torch.full((1, 2), 0.5))


def constant_logits(params, x):
    """Logits that do not depend on the parameters, so that only the penalty has a gradient."""
    return torch.zeros(1, 2, 2) + 0 * params.sum()


def test_the_penalty_and_its_gradient_follow_the_formula():
    params = torch.tensor([[1.5, 0.5]], requires_grad=True)
    memo = {"start": torch.tensor([[1.0, 1.0]])}
    loss = Proximal(0.1).loss(constant_logits, params, BATCH, memo)
    plain = TaskLoss().loss(constant_logits, params, BATCH, memo)
    assert float((loss - plain).detach()) == pytest.approx(0.025, abs=1e-6)
    (gradient,) = torch.autograd.grad(loss.sum(), params)
    assert gradient[0].tolist() == pytest.approx([0.05, -0.05], abs=1e-6)


def test_a_negative_strength_is_rejected():
    with pytest.raises(ConfigError, match="strength must not be negative"):
        Proximal(-1.0)
