"""What every local objective promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from contracts.checkpoint import round_trip, to_comparable
from contracts.model_probes import FakeModelProbe
from thalweg.core.capabilities import ServerHalf, TracksSessions
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
        for memo in memos(objective, start):
            _check_at(objective, net, params, memo, batch)


def memos(objective: Objective, start: torch.Tensor) -> list[dict[str, torch.Tensor]]:
    """What three clients know in their first round, and what they know later."""
    first: dict[str, torch.Tensor] = {"start": start}
    later: dict[str, torch.Tensor] = {"start": start}
    num_clients, num_params = start.shape
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(num_clients, num_params)).astype(np.float32)
    if isinstance(objective, StatefulObjective):
        states = [objective.init(num_params)] * num_clients
        first |= _stack_memos([objective.memo(state, _single(start[0])) for state in states])
        later_states = []
        for k, state in enumerate(states):
            look = FakeModelProbe(vectors[k].tolist(), fisher=(vectors[k] ** 2).tolist())
            same = objective.start_tick(state, look, np.arange(5), changed=False)
            assert to_comparable(same) == to_comparable(state), (
                "nothing happens while the state stays the same"
            )
            changed = objective.start_tick(state, look, np.arange(5), changed=True)
            assert to_comparable(
                objective.start_tick(state, look, np.arange(5), changed=True)
            ) == to_comparable(changed)
            restored = round_trip(changed, fresh=objective.init(num_params))
            assert to_comparable(restored) == to_comparable(changed), (
                "a checkpoint restores what it remembers"
            )
            later_states.append(_check_conclude(objective, restored, vectors[k]))
        later |= _stack_memos([objective.memo(state, _single(start[0])) for state in later_states])
    if isinstance(objective, ServerHalf):
        clients = np.arange(num_clients)
        notes = objective.init_server(num_clients + 2, num_params)
        first |= _to_float64(objective.broadcast(notes, clients))
        before = to_comparable(notes)
        heard = notes
        if isinstance(objective, TracksSessions):
            heard = objective.start_session(heard, vectors[0], clients)
        if words := _uploads(objective, vectors):
            uploads = {name: np.stack([each[name] for each in words]) for name in words[0]}
            heard = objective.collect(heard, clients, uploads)
        assert to_comparable(notes) == before, "what the server knew is untouched"
        restored = round_trip(heard, fresh=objective.init_server(num_clients + 2, num_params))
        assert to_comparable(restored) == to_comparable(heard), (
            "a checkpoint restores what the server knows"
        )
        later |= _to_float64(objective.broadcast(restored, clients))
    return [first, later]


def _check_conclude(objective: Objective, state: Any, vector: Floats32) -> Any:
    """What a client keeps after a round, if the objective wants to know of it."""
    if not isinstance(objective, FinishesRound):
        return state
    before = to_comparable(state)
    after, uploads = objective.finish_round(
        state, _broadcast(objective, len(vector)), _work(vector)
    )
    again, same = objective.finish_round(state, _broadcast(objective, len(vector)), _work(vector))
    assert to_comparable(state) == before, "what the client knew is untouched"
    assert to_comparable([after, dict(uploads)]) == to_comparable([again, dict(same)]), (
        "same work, same conclusion"
    )
    assert isinstance(objective, StatefulObjective)
    idle, nothing = objective.finish_round(
        state, _broadcast(objective, len(vector)), _work(vector)._replace(num_steps=0)
    )
    assert to_comparable(idle) == before, "who took no step learns nothing"
    assert uploads.keys() == nothing.keys(), "always the same names"
    restored = round_trip(after, fresh=objective.init(len(vector)))
    assert to_comparable(restored) == to_comparable(after), (
        "a checkpoint restores what it concluded"
    )
    return restored


def _uploads(objective: Objective, vectors: Floats32) -> list[dict[str, Floats32]]:
    """What each client says after a round; nothing, if the objective has nothing to say."""
    words: list[dict[str, Floats32]] = [{} for _ in vectors]
    for row, mine in zip(vectors, words, strict=True):
        if isinstance(objective, FinishesRound) and isinstance(objective, StatefulObjective):
            state = objective.init(len(row))
            mine |= objective.finish_round(state, _broadcast(objective, len(row)), _work(row))[1]
        if isinstance(objective, UploadsFromObjective):
            look = FakeModelProbe(row.tolist(), fisher=(row**2).tolist())
            mine |= objective.upload(look, np.arange(5))
    return words if words[0] else []


def _broadcast(objective: Objective, num_params: int) -> dict[str, Floats32]:
    if not isinstance(objective, ServerHalf):
        return {}
    broadcast = objective.broadcast(objective.init_server(5, num_params), np.arange(1))
    return {name: rows[0] for name, rows in broadcast.items()}


def _work(vector: Floats32) -> TrainingSummary:
    return TrainingSummary(np.zeros_like(vector), vector, num_steps=3, lr=0.1, momentum=0.5)


def _single(values: torch.Tensor) -> Any:
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
    loss, slope = value(objective, net, params, memo, batch)
    assert loss.shape == (3,), "one loss per client"
    assert torch.isfinite(loss).all(), "finite for ordinary numbers"
    for k in range(3):
        mine = Batch(*(part[k : k + 1] for part in batch))
        its_memo = {name: rows[k : k + 1] for name, rows in memo.items()}
        alone, its_slope = value(objective, net, params[k : k + 1], its_memo, mine)
        torch.testing.assert_close(loss[k : k + 1], alone, msg="stacked equals single")
        torch.testing.assert_close(slope[k : k + 1], its_slope, msg="and so do the slopes")
    again, same_slope = value(objective, net, params, memo, batch)
    assert torch.equal(loss, again), "a pure function"
    assert torch.equal(slope, same_slope), "with a pure slope"
    padded = Batch(
        x=torch.cat([batch.x, torch.full_like(batch.x[:, :2], 9.0)], 1),
        labels=torch.cat([batch.labels, torch.zeros(3, 2, dtype=torch.int64)], 1),
        weights=torch.cat([batch.weights, torch.zeros(3, 2, dtype=torch.float64)], 1),
    )
    with_padding, padded_slope = value(objective, net, params, memo, padded)
    torch.testing.assert_close(with_padding, loss, msg="samples of weight zero are not there")
    torch.testing.assert_close(padded_slope, slope, msg="nor do they pull")
    _check_slope(objective, net, params, memo, batch, slope)


def _check_slope(
    objective: Objective,
    net: Net,
    params: torch.Tensor,
    memo: dict[str, torch.Tensor],
    batch: Batch,
    slope: torch.Tensor,
) -> None:
    """The slope is the limit of differences, along some random directions."""
    rng = np.random.default_rng(2)
    for _ in range(3):
        way = torch.tensor(rng.standard_normal(params.shape)) / params.shape[1] ** 0.5
        ahead, behind = (
            value(objective, net, params + step * way, memo, batch)[0] for step in (1e-6, -1e-6)
        )
        torch.testing.assert_close(
            (ahead - behind) / 2e-6, (slope * way).sum(1), rtol=1e-5, atol=1e-7
        )


def value(objective: Objective, net: Net, params: Any, memo: Any, batch: Batch) -> Any:
    """Losses (K,) and their slopes (K, P); a stack of one goes the way of the reference engine."""
    params = params.detach().clone().requires_grad_()
    model = NetModel(net, is_stacked=len(params) > 1)
    loss = objective.loss(model, params, batch, memo)
    (slope,) = torch.autograd.grad(loss.sum(), params)
    return loss.detach(), slope
