import pytest
import torch

from thalweg.core.errors import ConfigError
from thalweg.local import Batch, CrossEntropy, Proximal

BATCH = Batch(torch.zeros(1, 2, 1), torch.tensor([[0, 1]]), torch.full((1, 2), 0.5))


def linear(params, x):
    """Logits that do not depend on the parameters, so that only the spring pulls."""
    return torch.zeros(1, 2, 2) + 0 * params.sum()


def test_the_spring_of_the_sheet():
    params = torch.tensor([[1.5, 0.5]], requires_grad=True)
    memo = {"start": torch.tensor([[1.0, 1.0]])}
    loss = Proximal(0.1).loss(linear, params, BATCH, memo)
    plain = CrossEntropy().loss(linear, params, BATCH, memo)
    assert float((loss - plain).detach()) == pytest.approx(0.025, abs=1e-6)
    (slope,) = torch.autograd.grad(loss.sum(), params)
    assert slope[0].tolist() == pytest.approx([0.05, -0.05], abs=1e-6)


def test_a_negative_strength_is_refused():
    with pytest.raises(ConfigError, match="strength must not be negative"):
        Proximal(-1.0)
