"""Cross-entropy for a few clients at once."""

import math

import pytest
import torch

from thalweg.local import OBJECTIVES, Batch, TaskLoss


def scores(params, x):
    """A 'net' whose logits are its input times its one parameter."""
    return params[:, :, None] * x


def test_the_loss_is_the_weighted_mean_negative_log_probability():
    # Logits (0, log 3): probabilities 1/4 and 3/4.
    x = torch.tensor([[[0.0, math.log(3)]] * 2])
    batch = Batch(x, torch.tensor([[0, 1]]), torch.tensor([[0.5, 0.5]]))
    loss = TaskLoss().loss(scores, torch.ones(1, 1), batch, {})
    assert loss.tolist() == pytest.approx([0.5 * math.log(4) + 0.5 * math.log(4 / 3)])


def test_clients_in_a_stack_are_independent():
    torch.manual_seed(0)
    batch = Batch(torch.randn(3, 4, 5), torch.randint(0, 5, (3, 4)), torch.rand(3, 4))
    params = torch.rand(3, 1)
    together = TaskLoss().loss(scores, params, batch, {})
    for k in range(3):
        mine = Batch(*(part[k : k + 1] for part in batch[:3]))
        alone = TaskLoss().loss(scores, params[k : k + 1], mine, {})
        assert together[k].item() == pytest.approx(alone.item(), rel=1e-6)


def test_samples_of_weight_zero_do_not_count():
    torch.manual_seed(0)
    x, labels = torch.randn(1, 3, 4), torch.tensor([[0, 1, 2]])
    padded = Batch(x, labels, torch.tensor([[0.5, 0.5, 0.0]]))
    short = Batch(x[:, :2], labels[:, :2], torch.tensor([[0.5, 0.5]]))
    losses = [TaskLoss().loss(scores, torch.ones(1, 1), b, {}).item() for b in (padded, short)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_cross_entropy_is_registered():
    assert OBJECTIVES["loss"]() == TaskLoss()
