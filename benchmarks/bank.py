"""What a bank costs a client: one local pass over four models against one pass over one model.

    python benchmarks/bank.py [--quick] [--models 4] [--clients 6] [--repeats 9]

Both are rounds of the same clients on the same mini-batches (8 of 64 samples each), in one process
of one thread; only the number of models differs. The two take turns. The limit we hold ourselves
to: four models cost at most 4.2 times one. Also shown, without a limit: the same with what comes
before it in FedRC, the loss of every held sample under every model.
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
from thalweg.engine.stacked import StackedTrainer, choose_stack_sizes
from thalweg.federation import MiniBatch
from thalweg.local import CrossEntropy, Sgd
from thalweg.nets import LeNet5, Mlp, Net, NetSpec

BATCHES, SIZE, LIMIT = 8, 64, 4.2
NETS: dict[str, NetSpec] = {"mlp 784-200-10": Mlp(), "lenet5": LeNet5()}


def images(number: int) -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (number, 28, 28, 1), dtype=np.uint8)
    y = rng.integers(0, 10, number)
    return Dataset("noise", x, y, x[:1], y[:1], 10, mean=(0.5,), std=(0.5,))


class Pass:
    """One round of some clients with every model of a bank."""

    def __init__(self, net: Net, data: Dataset, clients: int, models: int) -> None:
        self._trainer = StackedTrainer(net, CrossEntropy(), Sgd(lr=0.01, steps=1), Gather(data))
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

    def look(self) -> None:
        for model in self._bank:
            self._trainer.predict(model, "train", self._rows.ravel())


def seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def ratio(one: Callable[[], None], many: Callable[[], None], repeats: int) -> tuple[float, float]:
    """Median of the ratio of two that take turns, and of the seconds of the first."""
    one()
    many()
    pairs = [(seconds(one), seconds(many)) for _ in range(repeats)]
    return statistics.median(b / a for a, b in pairs), statistics.median(a for a, _ in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three repeats of two clients")
    parser.add_argument("--models", type=int, default=4)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    clients, repeats = (2, 3) if given.quick else (given.clients, given.repeats)
    data = images(clients * BATCHES * SIZE)
    for name, spec in NETS.items():
        net = spec.build(data.input_shape, data.num_classes)
        one, many = (Pass(net, data, clients, models) for models in (1, given.models))

        def with_losses(many: Pass = many) -> None:
            many.look()
            many.train()

        trained, first = ratio(one.train, many.train, repeats)
        whole, _ = ratio(one.train, with_losses, repeats)
        limit = LIMIT * given.models / 4
        print(
            f"{name}: {given.models} models {trained:.2f} times one ({1000 * first:.0f} ms), limit "
            f"{limit:.2f}: {'kept' if trained <= limit else 'MISSED'}; with the losses before it "
            f"{whole:.2f}"
        )


if __name__ == "__main__":
    main()
