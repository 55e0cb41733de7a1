"""Speed of training and aggregation compared with a plain PyTorch loop, as ratios.

    python benchmarks/speed.py                 about two minutes
    python benchmarks/speed.py --quick         a few seconds, less precise
    python benchmarks/speed.py --engine torch  without the native kernel
    python benchmarks/speed.py --objectives    A and B for every objective; a few minutes
    python benchmarks/speed.py --cpu           CPU time on one thread, also on a busy machine

The plain loop makes a deep copy of the module for each client and trains it with
`torch.optim.SGD`, with as many threads as cores and without a DataLoader (which would take another
10 to 100 % of the time). Both sides get the same mini-batches and run alternately, each for at
least 50 ms of consecutive rounds after one that is not counted. Times only count if the updates
agree: to 1e-5 for half of the clients and to 1e-2 for every client. Single clients may differ
because of ties: if two inputs of a pooling, or an input of a ReLU and zero, agree to seven digits,
rounding decides where the gradient goes.

The targets are for an idle machine: other processes slow down threads that wait for one another
more than independent processes. With `--cpu` both sides use one thread.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from thalweg.core.types import Floats32
from thalweg.core.vectors import combine
from thalweg.data.base import Dataset
from thalweg.engine.stack_tasks import StackTask, choose_stack_sizes
from thalweg.engine.workers import make_trainer
from thalweg.local import LocalTraining, TaskLoss
from thalweg.native.library import get_kernel_name, use_native_loops
from thalweg.nets import NETS, Cnn, LeNet5, Linear, Mlp, NetSpec, make_model_spec

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
MEAN, STD = 0.3, 0.35
MEASURED_SECONDS = 0.05


@dataclass(frozen=True)
class Workload:
    """Training of some clients, with the net as a `NetSpec` and as a PyTorch module."""

    name: str
    what: str
    clients: int
    batch: int
    input_shape: tuple[int, ...]
    num_classes: int
    spec: NetSpec
    module: Callable[[], nn.Module]
    target: float
    steps: int = 5


def lenet5() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))


def digits_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def logistic() -> nn.Module:
    return nn.Linear(20, 2)


def cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


def make_user_spec(make: Callable[[], nn.Module]) -> NetSpec:
    """Return the specification of a module, as for `thalweg.run(..., model=make())`."""
    return make_model_spec(make(), NETS)


WORKLOADS = [
    Workload("A", "LeNet-5, 28x28x1", 6, 64, (1, 28, 28), 10, LeNet5(), lenet5, 7.0),
    Workload("B", "MLP 784-200-10", 20, 64, (1, 28, 28), 10, Mlp(hidden=(200,)), mlp, 4.0),
    Workload("C", "logistic regression, d=20", 1000, 16, (20,), 2, Linear(), logistic, 350.0),
    Workload("D", "3-conv CNN, 32x32x3", 6, 64, (3, 32, 32), 10, Cnn(), cnn, 2.7),
    Workload("F", "MLP 64-64-10", 1, 16, (64,), 10, Mlp(hidden=(64,)), digits_mlp, 20.0, steps=40),
    Workload("G", "MLP 64-64-10", 3, 16, (64,), 10, Mlp(hidden=(64,)), digits_mlp, 30.0, steps=40),
    Workload(
        "U", "A as a user's module", 6, 64, (1, 28, 28), 10, make_user_spec(lenet5), lenet5, 1.0
    ),
    Workload("V", "B as a user's module", 20, 64, (1, 28, 28), 10, make_user_spec(mlp), mlp, 1.0),
]
OBJECTIVE_TARGET = 2.5
AGGREGATION_TARGET = 3.5
PREDICTION_TARGET = 3.0  # 0.17 CPU s for 0.5


def make_data(work: Workload, rng: np.random.Generator) -> Dataset:
    """Return random samples; the time does not depend on their values."""
    num, labels = 5000, rng.integers(0, work.num_classes, 5000)
    if len(work.input_shape) == 1:
        features = rng.standard_normal((num, *work.input_shape), dtype=np.float32)
        return Dataset("random", features, labels, features[:0], labels[:0], work.num_classes)
    channels, height, width = work.input_shape
    pixels = rng.integers(0, 256, (num, height, width, channels), dtype=np.uint8)
    norms = ((MEAN,) * channels, (STD,) * channels)
    return Dataset("random", pixels, labels, pixels[:0], labels[:0], work.num_classes, *norms)


def plain_tensors(data: Dataset) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the data of the plain loop: floats, normalised beforehand."""
    labels = torch.from_numpy(data.y)
    if not data.is_image:
        return torch.from_numpy(data.x), labels
    # The usual layout of PyTorch: (n, C, H, W).
    pixels = np.ascontiguousarray(np.moveaxis(data.x, 3, 1)).reshape(-1, *data.input_shape)
    return torch.from_numpy((pixels.astype(np.float32) / 255 - MEAN) / STD), labels


def plain_round(
    model: nn.Module, local: LocalTraining, x: torch.Tensor, y: torch.Tensor, batches: torch.Tensor
) -> list[nn.Module]:
    """Train the clients one after the other; batches (K, S, B)."""
    trained = []
    for client_batches in batches:
        client = copy.deepcopy(model)
        optimizer = torch.optim.SGD(client.parameters(), lr=local.lr, momentum=local.momentum)
        for rows in client_batches:
            optimizer.zero_grad()
            functional.cross_entropy(client(x[rows]), y[rows]).backward()
            optimizer.step()
        trained.append(client)
    return trained


def flat(model: nn.Module) -> Floats32:
    vector: Floats32 = nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
    return vector


def make_tasks(net: Any, rows: np.ndarray) -> list[StackTask]:
    """Return the batches (K, S, B) as tasks for stacked training."""
    tasks, first = [], 0
    for size in choose_stack_sizes(net, len(rows)):
        items = np.ascontiguousarray(rows[first : first + size].swapaxes(0, 1), dtype=np.int32)
        weights = np.full(items.shape, 1 / items.shape[2], dtype=np.float32)
        models, live = np.zeros(size, dtype=np.int64), np.ones(items.shape[:2], dtype=bool)
        noise = np.arange(first, first + size) if net.is_noisy else None
        tasks.append(StackTask(models, items, weights, live, noise=noise))
        first += size
    return tasks


def measure(action: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the mean time of a call: of as many calls in a row as fit into `MEASURED_SECONDS`.

    The first call is not counted: it starts threads and loads caches after a pause or after the
    other side. A run also computes one round after the other.
    """
    action()
    began, calls = time.perf_counter(), 0
    clock_began = clock()
    while calls == 0 or time.perf_counter() - began < MEASURED_SECONDS:
        action()
        calls += 1
    return (clock() - clock_began) / calls


def seconds(action: Callable[[], object]) -> float:
    time.sleep(0.02)  # threads of the other side may still be active
    return measure(action, time.perf_counter)


def cpu_seconds(action: Callable[[], object]) -> float:
    """Return the CPU time of all threads of this process."""
    return measure(action, time.process_time)


def time_in_turns(
    plain: Callable[[], object],
    ours: Callable[[], object],
    repeats: int,
    timer: Callable[[Callable[[], object]], float] = seconds,
) -> tuple[float, float]:
    """Call both functions alternately; return their median times in seconds."""
    pairs = [(timer(plain), timer(ours)) for _ in range(repeats)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def draw_batches(work: Workload, data: Dataset, rng: np.random.Generator) -> np.ndarray:
    """Return (K, S, B) the rows of each client's mini-batches."""
    return np.stack(
        [
            [rng.choice(len(data.y), work.batch, replace=False) for _ in range(work.steps)]
            for _ in range(work.clients)
        ]
    )


def time_training(
    work: Workload, repeats: int, engine: str, uses_cpu_time: bool = False
) -> tuple[float, float, float]:
    """Return the seconds of both sides for one round and the relative difference of the updates."""
    rng = np.random.default_rng(0)
    data = make_data(work, rng)
    rows = draw_batches(work, data, rng)
    local = LocalTraining(lr=0.01, momentum=0.9, batch_size=work.batch, steps=work.steps)
    net = work.spec.build(work.input_shape, work.num_classes)
    torch.manual_seed(0)
    model = work.module()
    bank = flat(model)[None]
    x, y = plain_tensors(data)
    batches, tasks = torch.from_numpy(rows), make_tasks(net, rows)
    cores = 1 if uses_cpu_time else CORES
    pool = make_trainer(net, TaskLoss(), local, data, cores, use_native=engine == "fast")
    try:
        trained = plain_round(model, local, x, y, batches)
        expected = np.stack([flat(client) for client in trained]) - bank
        deltas, _ = pool.train(bank, tasks)
        errors = np.linalg.norm(deltas - expected, axis=1) / np.linalg.norm(expected, axis=1)
        half = np.sort(errors)[(len(errors) - 1) // 2]  # of the clients
        difference = np.inf if errors.max() > 1e-2 else float(half)
        del deltas
        plain, ours = time_in_turns(
            lambda: plain_round(model, local, x, y, batches),
            lambda: pool.train(bank, tasks),
            repeats,
            cpu_seconds if uses_cpu_time else seconds,
        )
    finally:
        pool.close()
    return plain, ours, difference


def time_predictions(repeats: int, engine: str) -> tuple[float, float, float]:
    """Time 10,000 predictions of LeNet-5 in CPU seconds: a module in batches of 256, and ours."""
    rng, work = np.random.default_rng(0), WORKLOADS[0]
    data = make_data(work, rng)
    rows = rng.integers(0, len(data.y), 10_000)
    net = work.spec.build(work.input_shape, work.num_classes)
    torch.manual_seed(0)
    model = work.module().eval()
    x, params = plain_tensors(data)[0], flat(model)
    local = LocalTraining(lr=0.01, steps=1)
    trainer = make_trainer(net, TaskLoss(), local, data, CORES, use_native=engine == "fast")

    def plain() -> torch.Tensor:
        with torch.inference_mode():
            batches = torch.from_numpy(rows).split(256)
            return torch.cat([model(x[mine]).log_softmax(1) for mine in batches])

    try:
        expected, found = plain().numpy(), trainer.scores(params, "train", rows)
        error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
        pairs = [
            (cpu_seconds(plain), cpu_seconds(lambda: trainer.predict(params, "train", rows)))
            for _ in range(repeats)
        ]
    finally:
        trainer.close()
    return *(statistics.median(side) for side in zip(*pairs, strict=True)), float(error)


def time_aggregation(repeats: int) -> tuple[float, float, float]:
    """Time the sum of 100 updates of a million parameters: a loop over dicts, and `combine`."""
    rng = np.random.default_rng(0)
    shapes = {"fc1.weight": (1000, 784), "fc1.bias": (1000,), "fc2.weight": (212, 1000)}
    shapes |= {"fc2.bias": (212,), "fc3.weight": (10, 212), "fc3.bias": (10,)}
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    deltas = rng.standard_normal((100, sum(sizes)), dtype=np.float32)
    weights = rng.dirichlet(np.ones(100))
    updates = [
        {
            name: piece.clone().view(shape)
            for (name, shape), piece in zip(
                shapes.items(), torch.from_numpy(row).split(sizes), strict=True
            )
        }
        for row in deltas
    ]

    def plain() -> dict[str, torch.Tensor]:
        total = {name: torch.zeros_like(piece) for name, piece in updates[0].items()}
        for update, weight in zip(updates, weights, strict=True):
            for name, piece in update.items():
                total[name] += float(weight) * piece
        return total

    expected = torch.cat([piece.flatten() for piece in plain().values()]).numpy()
    error = np.linalg.norm(combine(weights, deltas) - expected) / np.linalg.norm(expected)
    return *time_in_turns(plain, lambda: combine(weights, deltas), repeats), float(error)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few repetitions: fast, less precise")
    parser.add_argument(
        "--only", default="ABCDFGUVP+", help="some of A, B, C, D, F, G, U, V and + (aggregation)"
    )
    parser.add_argument("--engine", choices=("fast", "torch"), default="fast")
    parser.add_argument("--objectives", action="store_true", help="A and B for every objective")
    parser.add_argument("--cpu", action="store_true", help="CPU time of the training on one thread")
    options = parser.parse_args(arguments)
    if options.cpu:
        torch.set_num_threads(1)
    repeats = 3 if options.quick else 21

    use_native_loops()
    kernel = "torch" if options.engine == "torch" else get_kernel_name()
    versions = f"{CORES} cores, torch {torch.__version__}, kernel {kernel}"
    what = "CPU ms of one thread" if options.cpu else "ms"
    print(f"{versions}, medians of {repeats} repetitions, {what} per round")
    print(f"{'workload':58s} {'plain':>8s} {'ours':>8s} {'ratio':>7s} {'target':>7s} {'error':>8s}")
    chosen = [work for work in WORKLOADS if work.name in options.only]
    if options.objectives:
        small = [work for work in chosen if work.name in "AB"]
        return 1 if any([*report_objectives(small, repeats, options.cpu)]) else 0
    differs = False
    for work in chosen:
        what = f"{work.name}  {work.what}, {work.clients} x {work.steps} x {work.batch}"
        differs |= report(
            what, *time_training(work, repeats, options.engine, options.cpu), work.target
        )
    if "P" in options.only and options.engine == "fast":  # worker processes are not counted
        what = "P  10,000 predictions of LeNet-5, CPU time"
        plain, ours, error = time_predictions(repeats, options.engine)
        differs |= report(what, plain, ours, error, PREDICTION_TARGET)
    if "+" in options.only:
        what = "+  aggregation of 100 updates of 1 M parameters"
        differs |= report(what, *time_aggregation(repeats), AGGREGATION_TARGET)
    return 1 if differs else 0


def report_objectives(
    works: Sequence[Workload], repeats: int, uses_cpu_time: bool
) -> Iterator[bool]:
    """Print a line per objective and net; yield whether the two sides differ."""
    import objectives

    from thalweg.local import OBJECTIVES

    for work in works:
        for name in OBJECTIVES:
            if name == "loss":  # A and B without this option
                continue
            if name not in objectives.PLAIN:
                print(f"{work.name}  {name}: has no plain loss in benchmarks/objectives.py")
                yield True
                continue
            what = f"{work.name}  {work.what}, {name}"
            times = objectives.time_objective(work, name, repeats, uses_cpu_time)
            yield report(what, *times, OBJECTIVE_TARGET)


def report(what: str, plain: float, ours: float, error: float, target: float) -> bool:
    """Print a line; return whether the updates of the two sides differ."""
    verdict = "" if plain / ours >= target else "  below target"
    if error > 1e-5:
        verdict = "  DIFFERENT UPDATES: times do not count"
    print(
        f"{what:58s} {plain * 1e3:8.1f} {ours * 1e3:8.2f} {plain / ours:7.1f} {target:7.1f} "
        f"{error:8.1e}{verdict}",
        flush=True,
    )
    return error > 1e-5


if __name__ == "__main__":
    sys.exit(main())
