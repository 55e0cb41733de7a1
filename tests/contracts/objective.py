"""Contract of local objectives."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from contracts.checkpoint import round_trip, to_comparable
from contracts.model_probes import FakeModelProbe
from thalweg.core.capabilities import ServerPart, TracksSessions
from thalweg.core.types import Floats32
from thalweg.engine.models import NetModel
from thalweg.local import (
    Batch,
    FinishesRound,
    Objective,
    StatefulObjective,
    TrainingSummary,
    UploadsFromObjective,
)
from thalweg.nets import LeNet5, Mlp, Net


def check_objective(objective: Objective) -> None:
    """Check that losses and gradients do not depend on stacking or padding, and states restore."""
    for net in (Mlp(hidden=(5,)).build((6,), 3), LeNet5().build((1, 8, 8), 3)):
        rng = np.random.default_rng(0)
        start = torch.tensor(np.stack([net.init(rng) for _ in range(3)]), dtype=torch.float64)
        params = start + 0.01 * torch.tensor(rng.standard_normal(start.shape))
        batch = Batch(
            x=torch.tensor(rng.standard_normal((3, 4, *net.input_shape))),
            targets=torch.tensor(rng.integers(0, 3, (3, 4))),
            weights=torch.full((3, 4), 0.25, dtype=torch.float64),
        )
        for memo in memos(objective, start):
            _check_at(objective, net, params, memo, batch)


def memos(objective: Objective, start: torch.Tensor) -> list[dict[str, torch.Tensor]]:
    """Return the memos of three clients, in their first round and later."""
    first: dict[str, torch.Tensor] = {"start": start}
    later: dict[str, torch.Tensor] = {"start": start}
    num_clients, num_params = start.shape
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(num_clients, num_params)).astype(np.float32)
    if isinstance(objective, StatefulObjective):
        states = [objective.init(num_params)] * num_clients
        first |= _stack_memos([objective.memo(state, _to_float32(start[0])) for state in states])
        later_states = []
        for k, state in enumerate(states):
            probe = FakeModelProbe(vectors[k].tolist(), fisher=(vectors[k] ** 2).tolist())
            same = objective.start_tick(state, probe, np.arange(5), changed=False)
            assert to_comparable(same) == to_comparable(state), (
                "start_tick without a change keeps the state"
            )
            changed = objective.start_tick(state, probe, np.arange(5), changed=True)
            assert to_comparable(
                objective.start_tick(state, probe, np.arange(5), changed=True)
            ) == to_comparable(changed)
            restored = round_trip(changed, fresh=objective.init(num_params))
            assert to_comparable(restored) == to_comparable(changed), (
                "a checkpoint restores the client state"
            )
            later_states.append(_check_finish_round(objective, restored, vectors[k]))
        later |= _stack_memos(
            [objective.memo(state, _to_float32(start[0])) for state in later_states]
        )
    if isinstance(objective, ServerPart):
        clients = np.arange(num_clients)
        server_state = objective.init_server(num_clients + 2, num_params)
        first |= _to_float64(objective.broadcast(server_state, clients))
        before = to_comparable(server_state)
        collected = server_state
        if isinstance(objective, TracksSessions):
            collected = objective.start_session(collected, vectors[0], clients)
        if per_client := _uploads(objective, vectors):
            uploads = {
                name: np.stack([each[name] for each in per_client]) for name in per_client[0]
            }
            collected = objective.collect(collected, clients, uploads)
        assert to_comparable(server_state) == before, "the old server state does not change"
        restored = round_trip(collected, fresh=objective.init_server(num_clients + 2, num_params))
        assert to_comparable(restored) == to_comparable(collected), (
            "a checkpoint restores the server state"
        )
        later |= _to_float64(objective.broadcast(restored, clients))
    return [first, later]


def _check_finish_round(objective: Objective, state: Any, vector: Floats32) -> Any:
    """Return the state after a round, if the objective has `finish_round`."""
    if not isinstance(objective, FinishesRound):
        return state
    before = to_comparable(state)
    after, uploads = objective.finish_round(
        state, _broadcast(objective, len(vector)), _summary(vector)
    )
    again, same = objective.finish_round(
        state, _broadcast(objective, len(vector)), _summary(vector)
    )
    assert to_comparable(state) == before, "the old client state does not change"
    assert to_comparable([after, dict(uploads)]) == to_comparable([again, dict(same)]), (
        "finish_round is deterministic"
    )
    assert isinstance(objective, StatefulObjective)
    idle, idle_uploads = objective.finish_round(
        state, _broadcast(objective, len(vector)), _summary(vector)._replace(num_steps=0)
    )
    assert to_comparable(idle) == before, "a round without steps keeps the state"
    assert uploads.keys() == idle_uploads.keys(), "uploads always have the same names"
    restored = round_trip(after, fresh=objective.init(len(vector)))
    assert to_comparable(restored) == to_comparable(after), (
        "a checkpoint restores the finished state"
    )
    return restored


def _uploads(objective: Objective, vectors: Floats32) -> list[dict[str, Floats32]]:
    """Return the uploads of each client after a round; empty if the objective has none."""
    per_client: list[dict[str, Floats32]] = [{} for _ in vectors]
    for row, uploads in zip(vectors, per_client, strict=True):
        if isinstance(objective, FinishesRound) and isinstance(objective, StatefulObjective):
            state = objective.init(len(row))
            uploads |= objective.finish_round(
                state, _broadcast(objective, len(row)), _summary(row)
            )[1]
        if isinstance(objective, UploadsFromObjective):
            probe = FakeModelProbe(row.tolist(), fisher=(row**2).tolist())
            uploads |= objective.upload(probe, np.arange(5))
    return per_client if per_client[0] else []


def _broadcast(objective: Objective, num_params: int) -> dict[str, Floats32]:
    if not isinstance(objective, ServerPart):
        return {}
    broadcast = objective.broadcast(objective.init_server(5, num_params), np.arange(1))
    return {name: rows[0] for name, rows in broadcast.items()}


def _summary(vector: Floats32) -> TrainingSummary:
    return TrainingSummary(np.zeros_like(vector), vector, num_steps=3, lr=0.1, momentum=0.5)


def _to_float32(values: torch.Tensor) -> Any:
    return values.numpy().astype(np.float32)


def _stack_memos(memos: list[Any]) -> dict[str, torch.Tensor]:
    return _to_float64({name: np.stack([memo[name] for memo in memos]) for name in memos[0]})


def _to_float64(rows: Any) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(np.array(matrix, dtype=np.float64)) for name, matrix in rows.items()}


def _check_at(
    objective: Objective,
    net: Net,
    params: torch.Tensor,
    memo: dict[str, torch.Tensor],
    batch: Batch,
) -> None:
    loss, gradient = value(objective, net, params, memo, batch)
    assert loss.shape == (3,), "one loss per client"
    assert torch.isfinite(loss).all(), "finite for ordinary numbers"
    for k in range(3):
        single = Batch(*(part[k : k + 1] for part in batch[:3]))
        single_memo = {name: rows[k : k + 1] for name, rows in memo.items()}
        alone, alone_gradient = value(objective, net, params[k : k + 1], single_memo, single)
        torch.testing.assert_close(loss[k : k + 1], alone, msg="stacked equals single")
        torch.testing.assert_close(
            gradient[k : k + 1], alone_gradient, msg="stacked gradients equal single ones"
        )
    again, same_gradient = value(objective, net, params, memo, batch)
    assert torch.equal(loss, again), "the loss is a pure function"
    assert torch.equal(gradient, same_gradient), "the gradient is deterministic"
    padded = Batch(
        x=torch.cat([batch.x, torch.full_like(batch.x[:, :2], 9.0)], 1),
        targets=torch.cat([batch.targets, torch.zeros(3, 2, dtype=torch.int64)], 1),
        weights=torch.cat([batch.weights, torch.zeros(3, 2, dtype=torch.float64)], 1),
    )
    with_padding, padded_gradient = value(objective, net, params, memo, padded)
    torch.testing.assert_close(with_padding, loss, msg="samples of weight zero do not count")
    torch.testing.assert_close(padded_gradient, gradient, msg="nor in the gradient")
    _check_gradient(objective, net, params, memo, batch, gradient)


def _check_gradient(
    objective: Objective,
    net: Net,
    params: torch.Tensor,
    memo: dict[str, torch.Tensor],
    batch: Batch,
    gradient: torch.Tensor,
) -> None:
    """Check the gradient against finite differences along random directions."""
    rng = np.random.default_rng(2)
    for _ in range(3):
        direction = torch.tensor(rng.standard_normal(params.shape)) / params.shape[1] ** 0.5
        ahead, behind = (
            value(objective, net, params + step * direction, memo, batch)[0]
            for step in (1e-6, -1e-6)
        )
        torch.testing.assert_close(
            (ahead - behind) / 2e-6, (gradient * direction).sum(1), rtol=1e-5, atol=1e-7
        )


def value(objective: Objective, net: Net, params: Any, memo: Any, batch: Batch) -> Any:
    """Return losses (K,) and gradients (K, P); a stack of one runs as in the reference engine."""
    params = params.detach().clone().requires_grad_()
    model = NetModel(net, is_stacked=len(params) > 1)
    loss = objective.loss(model, params, batch, memo)
    (gradient,) = torch.autograd.grad(loss.sum(), params)
    return loss.detach(), gradient
