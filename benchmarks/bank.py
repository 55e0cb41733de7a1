"""Cost of a bank: a local pass over four models compared with a pass over one model.

    python benchmarks/bank.py [--quick] [--models 4] [--clients 6] [--repeats 9]

Both are rounds of the same clients on the same mini-batches (8 of 64 samples each), in one process
with one thread; only the number of models differs. They run alternately. Limit: four models take at
most 4.2 times as long as one. Also shown, without a limit: the same with the computation that
precedes it in FedRC, the loss of every stored sample under every model.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from thalweg.data import Dataset
from thalweg.engine.fast import stack
from thalweg.engine.gather import Gather
from thalweg.engine.stack_tasks import choose_stack_sizes
from thalweg.engine.stacked import StackedTrainer
from thalweg.federation import MiniBatch
from thalweg.local import LocalTraining, TaskLoss
from thalweg.nets import LeNet5, Mlp, Net, NetSpec

BATCHES, SIZE, LIMIT = 8, 64, 4.2
NETS: dict[str, NetSpec] = {"mlp 784-200-10": Mlp(), "lenet5": LeNet5()}


def random_images(number: int) -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (number, 28, 28, 1), dtype=np.uint8)
    y = rng.integers(0, 10, number)
    return Dataset("noise", x, y, x[:1], y[:1], 10, mean=(0.5,), std=(0.5,))


class Pass:
    """One round of some clients with every model of a bank."""

    def __init__(self, net: Net, data: Dataset, clients: int, models: int) -> None:
        self._trainer = StackedTrainer(
            net, TaskLoss(), LocalTraining(lr=0.01, steps=1), Gather(data)
        )
        rng = np.random.default_rng(1)
        self._bank = np.stack([net.init(rng) for _ in range(models)])
        self._rows = rng.permutation(len(data.y))[: clients * BATCHES * SIZE].reshape(clients, -1)
        jobs = [(client, model) for client in range(clients) for model in range(models)]
        weights = np.full(SIZE, 1 / SIZE, dtype=np.float32)
        batches = [
            [
                MiniBatch(part.astype(np.int32), weights)
                for part in self._rows[client].reshape(-1, SIZE)
            ]
            for client, _ in jobs
        ]
        which = np.array([model for _, model in jobs])
        ends = np.cumsum([0, *choose_stack_sizes(net, len(jobs))]).tolist()
        self._tasks = [
            stack(which[first:last], batches[first:last]) for first, last in pairwise(ends)
        ]

    def train(self) -> None:
        self._trainer.train(self._bank, self._tasks)

    def compute_losses(self) -> None:
        for model in self._bank:
            self._trainer.predict(model, "train", self._rows.ravel())


def seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def time_ratio(
    one: Callable[[], None], many: Callable[[], None], repeats: int
) -> tuple[float, float]:
    """Call both alternately; return the median ratio and the median seconds of the first."""
    one()
    many()
    pairs = [(seconds(one), seconds(many)) for _ in range(repeats)]
    return statistics.median(b / a for a, b in pairs), statistics.median(a for a, _ in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three repetitions with two clients")
    parser.add_argument("--models", type=int, default=4)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=9)
    args = parser.parse_args()
    clients, repeats = (2, 3) if args.quick else (args.clients, args.repeats)
    data = random_images(clients * BATCHES * SIZE)
    for name, spec in NETS.items():
        net = spec.build(data.input_shape, data.num_classes)
        one, many = (Pass(net, data, clients, models) for models in (1, args.models))

        def with_losses(many: Pass = many) -> None:
            many.compute_losses()
            many.train()

        trained, first = time_ratio(one.train, many.train, repeats)
        whole, _ = time_ratio(one.train, with_losses, repeats)
        limit = LIMIT * args.models / 4
        print(
            f"{name}: {args.models} models {trained:.2f} times one ({1000 * first:.0f} ms), limit "
            f"{limit:.2f}: {'met' if trained <= limit else 'MISSED'}; with the losses "
            f"{whole:.2f}"
        )


if __name__ == "__main__":
    main()
