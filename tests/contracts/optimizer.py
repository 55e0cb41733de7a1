"""Contract of client optimizers."""

from __future__ import annotations

import numpy as np
import torch

from contracts.checkpoint import round_trip
from thalweg.local import Optimizer, StepSettings
from thalweg.local.optimizers import (
    StackState,
    export_row,
    restore_row,
    select_rows,
    write_rows,
)

SHAPES = [(3, 4), (5,)]
NUM_PARAMS = 17


def check_optimizer(optimizer: Optimizer) -> None:
    """Check that steps do not depend on stacking, and that an exported state continues equally."""
    settings = StepSettings(
        lr=0.1,
        momentum=0.5 if optimizer.accepts_momentum else 0.0,
        weight_decay=0.01 if optimizer.accepts_weight_decay else 0.0,
    )
    rng = np.random.default_rng(0)
    start = torch.tensor(rng.normal(size=(3, NUM_PARAMS)), dtype=torch.float32)
    gradients = torch.tensor(rng.normal(size=(6, 3, NUM_PARAMS)), dtype=torch.float32)
    scale = torch.tensor([[1.0], [0.5], [0.25]])
    alone = [
        _run(optimizer, settings, start[k : k + 1], gradients[:, k : k + 1], scale[k : k + 1])
        for k in range(3)
    ]
    stacked = _run(optimizer, settings, start, gradients, scale)
    assert torch.equal(torch.cat(alone), stacked), "steps do not depend on the other clients"
    assert torch.isfinite(stacked).all()
    assert (stacked != start).any(1).all()
    _check_selection(optimizer, settings, start, gradients)
    _check_checkpoint(optimizer, settings, start, gradients)


def _run(
    optimizer: Optimizer,
    settings: StepSettings,
    start: torch.Tensor,
    gradients: torch.Tensor,
    scale: torch.Tensor | None = None,
) -> torch.Tensor:
    params, state = start.clone(), optimizer.init(start, settings, SHAPES)
    for gradient in gradients:
        optimizer.step(params, gradient.clone(), state, settings, scale)
    return params


def _check_selection(
    optimizer: Optimizer, settings: StepSettings, start: torch.Tensor, gradients: torch.Tensor
) -> None:
    """Client 1 skips the steps 1 and 2."""
    params, state = start.clone(), optimizer.init(start, settings, SHAPES)
    for step, gradient in enumerate(gradients):
        rows = np.array([0, 2] if step in (1, 2) else [0, 1, 2])
        index = torch.from_numpy(rows)
        chosen, some = params[index], select_rows(state, rows)
        optimizer.step(chosen, gradient[index].clone(), some, settings)
        params[index] = chosen
        write_rows(state, rows, some)
    kept = [0, 3, 4, 5]
    expected = _run(optimizer, settings, start[1:2], gradients[kept, 1:2])
    assert torch.equal(params[1:2], expected), "clients have their own step counters"
    assert torch.equal(params[:1], _run(optimizer, settings, start[:1], gradients[:, :1]))


def _check_checkpoint(
    optimizer: Optimizer, settings: StepSettings, start: torch.Tensor, gradients: torch.Tensor
) -> None:
    whole, cut = start.clone(), start.clone()
    state = optimizer.init(start, settings, SHAPES)
    for gradient in gradients[:3]:
        optimizer.step(whole, gradient.clone(), state, settings)
    cut.copy_(whole)
    restored: StackState = optimizer.init(start, settings, SHAPES)
    for k in range(len(start)):
        restore_row(restored, k, round_trip(export_row(state, k), fresh=None))
    for gradient in gradients[3:]:
        optimizer.step(whole, gradient.clone(), state, settings)
        optimizer.step(cut, gradient.clone(), restored, settings)
    assert torch.equal(whole, cut), "a checkpoint restores the state of the optimizer"
