"""Rounds per second on two one-core nodes of a Ray cluster compared with one.

    python benchmarks/ray_nodes.py             about a minute
    python benchmarks/ray_nodes.py --quick     a few rounds, less precise

A round is the training of 24 clients with LeNet-5 (workload A of `speed.py`) and the weighted sum
of their updates. The nodes are processes of this machine, which must be idle and have at least two
cores. Both sides use the same actors: one side uses one of them, the other side both. They run
alternately, and their updates must have the same bits.

The CPU time per round with both nodes is printed for the process of the run, the actors, and Ray's
own processes (Linux only). It can also be measured on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from thalweg.core.vectors import combine
from thalweg.data.base import Dataset
from thalweg.engine.ray.cluster import RayCluster, import_ray
from thalweg.engine.ray.trainer import RayTrainer
from thalweg.engine.stack_tasks import StackTask, choose_stack_sizes
from thalweg.local import Euclidean, LocalTraining, TaskLoss
from thalweg.losses import CrossEntropy
from thalweg.nets import LeNet5

CLIENTS, STEPS, BATCH, TARGET = 24, 5, 64, 1.7


def make_data(rng: np.random.Generator) -> Dataset:
    pixels = rng.integers(0, 256, (5000, 28, 28, 1), dtype=np.uint8)
    labels = rng.integers(0, 10, 5000)
    return Dataset("random", pixels, labels, pixels[:0], labels[:0], 10, (0.3,), (0.35,))


def make_tasks(sizes: list[int], rng: np.random.Generator) -> list[StackTask]:
    tasks = []
    for size in sizes:
        shape = (STEPS, size, BATCH)
        items = rng.integers(0, 5000, shape).astype(np.int32)
        weights = np.full(shape, 1 / BATCH, dtype=np.float32)
        tasks.append(
            StackTask(np.zeros(size, dtype=np.int64), items, weights, np.ones(shape[:2], bool))
        )
    return tasks


def measure_cpu_seconds() -> dict[str, float]:
    """Return the CPU time so far of this process and of those that it has started, by kind."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    kinds: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().rpartition(")")
            command = (folder / "cmdline").read_text()
        except OSError:  # it has ended
            continue
        values, pid = rest.split(), int(folder.name)
        parents[pid] = int(values[1])
        seconds[pid] = (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")
        program = name.partition("(")[2]
        is_actor = "TrainingActor" in command
        kinds[pid] = "actors" if is_actor else f"Ray: {program}"
    found: dict[str, float] = defaultdict(float)
    for pid in parents:
        ancestor = pid
        while ancestor in parents and ancestor != os.getpid():
            ancestor = parents[ancestor]
        if ancestor == os.getpid():
            found["process of the run" if pid == ancestor else kinds[pid]] += seconds[pid]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few rounds, less precise")
    repeats = 3 if parser.parse_args().quick else 40
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import_ray()
    from ray.cluster_utils import Cluster

    rng = np.random.default_rng(0)
    data = make_data(rng)
    net = LeNet5().build(data.input_shape, 10)
    bank = net.init(rng)[None]
    tasks = make_tasks(choose_stack_sizes(net, CLIENTS), rng)
    local = LocalTraining(lr=0.05, momentum=0.9, batch_size=BATCH, steps=STEPS)
    weights = np.full(CLIENTS, 1 / CLIENTS)

    cluster = Cluster()
    cluster.add_node(num_cpus=0, include_dashboard=False)
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    parts = (net, TaskLoss(), local, data, RayCluster(cluster.address))
    trainer = RayTrainer(*parts, Euclidean(), None, CrossEntropy())
    try:
        both = dict(trainer.actors)
        seconds: dict[int, list[float]] = {1: [], 2: []}
        sums = []
        for repeat in range(repeats + 2):
            for number, times in seconds.items():
                trainer.actors = dict(list(both.items())[:number])
                began = time.perf_counter()
                sums.append(combine(weights, trainer.train(bank, tasks)[0]))
                if repeat >= 2:  # the first rounds load code
                    times.append(time.perf_counter() - began)
        trainer.actors = both
        before = measure_cpu_seconds()
        for _ in range(repeats):
            combine(weights, trainer.train(bank, tasks)[0])
        after = measure_cpu_seconds()
        assert all(np.array_equal(sums[0], other) for other in sums), "the bits differ"
    finally:
        trainer.close()
        cluster.shutdown()  # type: ignore[no-untyped-call]
    one, two = (1 / statistics.median(times) for times in seconds.values())
    print(f"one node {one:.2f} rounds/s, two nodes {two:.2f} rounds/s: {two / one:.2f}x ", end="")
    print(f"(target {TARGET}x), same bits")
    print("CPU ms per round with two nodes:")
    for kind in sorted(after, key=lambda kind: before[kind] - after[kind]):
        print(f"  {kind:24s} {1e3 * (after[kind] - before[kind]) / repeats:7.1f}")
    return 0 if two / one >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
