"""What every local objective promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from thalweg.local import Batch, Objective
from thalweg.nets import LeNet5, Mlp, Net


def check_objective(objective: Objective) -> None:
    """One client alone, clients stacked, and batches with padding: the same losses and slopes."""
    for net in (Mlp(hidden=(5,)).build((6,), 3), LeNet5().build((1, 8, 8), 3)):
        rng = np.random.default_rng(0)
        start = torch.tensor(np.stack([net.init(rng) for _ in range(3)]), dtype=torch.float64)
        params = start + 0.01 * torch.tensor(rng.standard_normal(start.shape))
        batch = Batch(
            x=torch.tensor(rng.standard_normal((3, 4, *net.input_shape))),
            labels=torch.tensor(rng.integers(0, 3, (3, 4))),
            weights=torch.full((3, 4), 0.25, dtype=torch.float64),
        )
        loss, slope = value(objective, net, params, start, batch)
        assert loss.shape == (3,), "one loss per client"
        assert torch.isfinite(loss).all(), "finite for ordinary numbers"
        for k in range(3):
            mine = Batch(*(part[k : k + 1] for part in batch))
            alone, its_slope = value(objective, net, params[k : k + 1], start[k : k + 1], mine)
            torch.testing.assert_close(loss[k : k + 1], alone, msg="stacked equals single")
            torch.testing.assert_close(slope[k : k + 1], its_slope, msg="and so do the slopes")
        again, same_slope = value(objective, net, params, start, batch)
        assert torch.equal(loss, again), "a pure function"
        assert torch.equal(slope, same_slope), "with a pure slope"
        padded = Batch(
            x=torch.cat([batch.x, torch.full_like(batch.x[:, :2], 9.0)], 1),
            labels=torch.cat([batch.labels, torch.zeros(3, 2, dtype=torch.int64)], 1),
            weights=torch.cat([batch.weights, torch.zeros(3, 2, dtype=torch.float64)], 1),
        )
        with_padding, padded_slope = value(objective, net, params, start, padded)
        torch.testing.assert_close(with_padding, loss, msg="samples of weight zero are not there")
        torch.testing.assert_close(padded_slope, slope, msg="nor do they pull")


def value(objective: Objective, net: Net, params: Any, start: Any, batch: Batch) -> Any:
    """Losses (K,) and their slopes (K, P); a stack of one goes the way of the reference engine."""

    def one_model(params: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return net.apply(params[0], x[0])[None]

    params = params.detach().clone().requires_grad_()
    model = net.apply_stacked if len(params) > 1 else one_model
    loss = objective.loss(model, params, batch, {"start": start})
    (slope,) = torch.autograd.grad(loss.sum(), params)
    return loss.detach(), slope
