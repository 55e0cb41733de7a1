"""Speed of each objective: stacked clients compared with a plain PyTorch loop.

    python benchmarks/speed.py --objectives

The plain loop is that of `speed.py` with a loss written by hand for modules. The objectives of the
package are computed as in the fast engine: in worker processes, or in threads of one process if the
objective has a state or a broadcast. States and broadcasts (an anchor, the curvature of the other
clients, a teacher) are computed beforehand for both sides; only the training steps are timed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from speed import (
    CORES,
    Workload,
    cpu_seconds,
    draw_batches,
    flat,
    make_data,
    make_tasks,
    plain_tensors,
    seconds,
    time_in_turns,
)
from torch import Tensor, nn
from torch.nn import functional

from thalweg.core.capabilities import ServerPart, TracksSessions
from thalweg.core.types import Floats32, Ints
from thalweg.data.base import Dataset
from thalweg.engine.gather import Gather
from thalweg.engine.model_probe import FixedModelProbe
from thalweg.engine.stack_tasks import StackTask
from thalweg.engine.stacked import StackedTrainer, map_in_threads
from thalweg.engine.workers import make_trainer
from thalweg.local import (
    OBJECTIVES,
    Euclidean,
    FinishesRound,
    LocalTraining,
    Objective,
    StatefulObjective,
    TrainingSummary,
    UploadsFromObjective,
)
from thalweg.losses import CrossEntropy
from thalweg.native.trainer import make_native_trainer
from thalweg.nets import Net

Memo = Mapping[str, Floats32]  # name -> (K, P)
Parts = Mapping[str, list[Tensor]]  # name -> vectors of one client, in the shapes of the module
PlainLoss = Callable[[Any, nn.Module, Tensor, Tensor, Parts, Mapping[str, nn.Module]], Tensor]


# --- losses of the plain loop ---


def plain_proximal(
    own: Any, client: nn.Module, x: Tensor, y: Tensor, parts: Parts, teachers: Any
) -> Tensor:
    pull = sum(
        ((p - p0) ** 2).sum() for p, p0 in zip(client.parameters(), parts["start"], strict=True)
    )
    return functional.cross_entropy(client(x), y) + own.strength / 2 * pull


def plain_elastic(
    own: Any, client: nn.Module, x: Tensor, y: Tensor, parts: Parts, teachers: Any
) -> Tensor:
    triples = zip(client.parameters(), parts["anchor"], parts["fisher"], strict=True)
    pull = sum((fisher * (p - anchor) ** 2).sum() for p, anchor, fisher in triples)
    return functional.cross_entropy(client(x), y) + own.strength / 2 * pull


def plain_curvature(
    own: Any, client: nn.Module, x: Tensor, y: Tensor, parts: Parts, teachers: Any
) -> Tensor:
    triples = zip(
        client.parameters(), parts["others_fisher"], parts["others_fisher_params"], strict=True
    )
    pull = sum(
        (fisher * p * p - 2 * fisher_params * p).sum() for p, fisher, fisher_params in triples
    )
    return functional.cross_entropy(client(x), y) + own.strength * pull


def plain_not_true(
    own: Any, client: nn.Module, x: Tensor, y: Tensor, parts: Parts, teachers: Any
) -> Tensor:
    logits, tau = client(x), own.temperature
    with torch.no_grad():
        teacher = teachers["start"](x)
    wrong = functional.one_hot(y, logits.shape[1]) == 0
    student, teacher = (each[wrong].view(len(y), -1) / tau for each in (logits, teacher))
    distillation = functional.kl_div(
        student.log_softmax(1), teacher.log_softmax(1), reduction="batchmean", log_target=True
    )
    return functional.cross_entropy(logits, y) + own.strength * tau**2 * distillation


def plain_two_teachers(
    own: Any, client: nn.Module, x: Tensor, y: Tensor, parts: Parts, teachers: Any
) -> Tensor:
    logits, tau = client(x), own.temperature
    with torch.no_grad():
        past, common = teachers["past"](x), teachers["start"](x)
    loss_past = functional.cross_entropy(logits / tau, (past / tau).softmax(1))
    loss_common = functional.cross_entropy(logits / tau, (common / tau).softmax(1))
    loss = own.weight_ce * functional.cross_entropy(logits, y)
    return loss + own.weight_past * loss_past + own.weight_global * loss_common


def plain_scaffold(
    own: Any, client: nn.Module, x: Tensor, y: Tensor, parts: Parts, teachers: Any
) -> Tensor:
    quadruples = zip(
        client.parameters(), parts["start"], parts["common"], parts["own"], strict=True
    )
    correction = sum(((c - c_i) * (p - p0)).sum() for p, p0, c, c_i in quadruples)
    return functional.cross_entropy(client(x), y) + correction


def plain_moon(
    own: Any, client: nn.Module, x: Tensor, y: Tensor, parts: Parts, teachers: Any
) -> Tensor:
    features = client[:-1](x)  # type: ignore[index]
    with torch.no_grad():
        received, previous = teachers["start"][:-1](x), teachers["previous"][:-1](x)
    angles = [functional.cosine_similarity(features, each) for each in (received, previous)]
    contrast = functional.cross_entropy(
        torch.stack(angles, 1) / own.temperature, torch.zeros_like(y)
    )
    logits = client[-1](features)  # type: ignore[index]
    return functional.cross_entropy(logits, y) + own.strength * contrast


def plain_continuous(
    own: Any, client: nn.Module, x: Tensor, y: Tensor, parts: Parts, teachers: Any
) -> Tensor:
    logits = client(x)
    with torch.no_grad():
        teacher = teachers["teacher"](x)
    distillation = functional.kl_div(
        logits.log_softmax(1), teacher.log_softmax(1), reduction="batchmean", log_target=True
    )
    return functional.cross_entropy(logits, y) + own.strength * distillation


PLAIN: dict[str, PlainLoss] = {
    "continuous": plain_continuous,
    "moon": plain_moon,
    "curvature": plain_curvature,
    "elastic": plain_elastic,
    "not-true": plain_not_true,
    "proximal": plain_proximal,
    "scaffold": plain_scaffold,
    "two-teachers": plain_two_teachers,
}
TEACHERS = {
    "continuous": ["teacher"],
    "moon": ["start", "previous"],
    "not-true": ["start"],
    "two-teachers": ["past", "start"],
}


def plain_round(
    name: str,
    objective: Objective,
    model: nn.Module,
    local: LocalTraining,
    data: tuple[Tensor, Tensor],
    batches: Tensor,
    memo: Memo,
) -> list[nn.Module]:
    """Train the clients one after the other; batches (K, S, B)."""
    (x, y), loss, trained = data, PLAIN[name], []
    for k, client_batches in enumerate(batches):
        client = copy.deepcopy(model)
        parts = {
            what: _split_vector(torch.from_numpy(rows[k]), model) for what, rows in memo.items()
        }
        teachers = {what: _make_module(parts[what], model) for what in TEACHERS.get(name, [])}
        optimizer = torch.optim.SGD(client.parameters(), lr=local.lr, momentum=local.momentum)
        for rows in client_batches:
            optimizer.zero_grad()
            loss(objective, client, x[rows], y[rows], parts, teachers).backward()
            optimizer.step()
        trained.append(client)
    return trained


def _split_vector(vector: Tensor, model: nn.Module) -> list[Tensor]:
    shapes = [p.shape for p in model.parameters()]
    pieces = vector.split([shape.numel() for shape in shapes])
    return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def _make_module(parts: Iterable[Tensor], model: nn.Module) -> nn.Module:
    teacher = copy.deepcopy(model)
    with torch.no_grad():
        for p, part in zip(teacher.parameters(), parts, strict=True):
            p.copy_(part)
    return teacher


# --- the fast engine ---


def make_memo(objective: Objective, trainer: StackedTrainer, start: Floats32, rows: Ints) -> Memo:
    """Return the memo of K clients in a later round; rows (K, n) are the samples in memory."""
    rng, num_params = np.random.default_rng(1), start.shape[1]
    # Models as if each client had trained before.
    probes = [
        FixedModelProbe(trainer, params + 0.01 * rng.standard_normal(num_params, dtype=np.float32))
        for params in start
    ]
    clients, memo, broadcast = np.arange(len(start)), dict[str, Floats32](), dict[str, Floats32]()
    server = (
        objective.init_server(len(start), num_params) if isinstance(objective, ServerPart) else None
    )
    if isinstance(objective, TracksSessions):
        server = objective.start_session(server, probes[0].params(), clients)
    if isinstance(objective, ServerPart) and isinstance(objective, UploadsFromObjective):
        sent = [objective.upload(probe, held) for probe, held in zip(probes, rows, strict=True)]
        uploads = {name: np.stack([each[name] for each in sent]) for name in sent[0]}
        server = objective.collect(server, clients, uploads)
    if isinstance(objective, ServerPart):
        broadcast = dict(objective.broadcast(server, clients))
    if isinstance(objective, StatefulObjective):
        memos = []
        for k, (probe, held, params) in enumerate(zip(probes, rows, start, strict=True)):
            state = objective.start_tick(objective.init(num_params), probe, held, changed=True)
            if isinstance(objective, FinishesRound):
                work = TrainingSummary(params, probe.params(), num_steps=5, lr=0.01, momentum=0.9)
                received = {name: values[k] for name, values in broadcast.items()}
                state, _ = objective.finish_round(state, received, work)
            memos.append(objective.memo(state, params))
        memo = {name: np.stack([each[name] for each in memos]) for name in memos[0]}
    # Rows are contiguous in the engine; np.array would keep the order of a broadcast, by column.
    memo |= {name: np.ascontiguousarray(values) for name, values in broadcast.items()}
    return memo


def make_stacked_trainer(
    objective: Objective, net: Net, local: LocalTraining, data: Dataset
) -> StackedTrainer:
    """Return the trainer of this process, with the native kernel where it can compute."""
    fixed = (Euclidean(), None, CrossEntropy())
    native = make_native_trainer(net, objective, local, data, *fixed)
    return StackedTrainer(net, objective, local, Gather(data), *fixed, native)


@contextmanager
def fast_round(
    objective: Objective,
    net: Net,
    local: LocalTraining,
    data: Dataset,
    tasks: list[StackTask],
    bank: Floats32,
    memo: Memo,
    cores: int,
) -> Iterator[Callable[[], Floats32]]:
    """Yield a function that trains all clients and returns their updates (K, P)."""
    if not memo:
        pool = make_trainer(net, objective, local, data, cores, use_native=True)
        try:
            yield lambda: pool.train(bank, tasks)[0]
        finally:
            pool.close()
        return
    trainer = make_stacked_trainer(objective, net, local, data)
    ends = np.cumsum([0, *(len(task.models) for task in tasks)]).tolist()
    parts = [slice(first, last) for first, last in pairwise(ends)]

    def train() -> Floats32:
        deltas = np.empty((ends[-1], bank.shape[1]), dtype=np.float32)

        def work(job: tuple[StackTask, slice]) -> None:
            task, part = job
            stack = trainer.begin(bank, task.models)
            tensors = {name: torch.from_numpy(rows[part]) for name, rows in memo.items()}
            for step in range(len(task.items)):  # one step per tick, as samples may arrive between
                now = slice(step, step + 1)
                trainer.steps(stack, task.items[now], task.weights[now], task.live[now], tensors)
            trainer.finish(stack, deltas[part])

        map_in_threads(work, list(zip(tasks, parts, strict=True)), cores)
        return deltas

    yield train


def time_objective(
    work: Workload, name: str, repeats: int, uses_cpu_time: bool
) -> tuple[float, float, float]:
    """Return the seconds of both sides for one round and the relative difference of the updates."""
    rng = np.random.default_rng(0)
    data = make_data(work, rng)
    rows = draw_batches(work, data, rng)  # (K, S, B)
    local = LocalTraining(lr=0.01, momentum=0.9, batch_size=work.batch, steps=work.steps)
    net = work.spec.build(work.input_shape, work.num_classes)
    objective = OBJECTIVES[name]()
    torch.manual_seed(0)
    model = work.module()
    bank = flat(model)[None]
    start = np.repeat(bank, work.clients, axis=0)
    trainer = make_stacked_trainer(objective, net, local, data)
    memo = make_memo(objective, trainer, start, rows[:, 0])
    tensors, batches = plain_tensors(data), torch.from_numpy(rows)

    def plain() -> list[nn.Module]:
        vectors = {"start": start, **memo}
        return plain_round(name, objective, model, local, tensors, batches, vectors)

    cores, timer = (1, cpu_seconds) if uses_cpu_time else (CORES, seconds)
    tasks = make_tasks(net, rows)
    with fast_round(objective, net, local, data, tasks, bank, memo, cores) as ours:
        expected = np.stack([flat(client) for client in plain()]) - bank
        errors = np.linalg.norm(ours() - expected, axis=1) / np.linalg.norm(expected, axis=1)
        difference = np.inf if errors.max() > 1e-2 else float(np.median(errors))
        return *time_in_turns(plain, ours, repeats, timer), difference
