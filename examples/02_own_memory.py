"""A memory policy: which samples a client keeps when new ones arrive.

A policy is a frozen dataclass. It does not receive samples, only a `MemoryContext` with their
number and labels. It returns the positions to keep: 0 .. held-1 are the stored samples, held ..
held+new-1 the new ones. Its state is passed in and returned. Takes a few seconds and prints

    UniformRatio(budget=0.5, stochastic_rounding=False): accuracy 0.94
    Cooling(scale=200.0): accuracy 0.96

The second run from the command line:

    thalweg run fedavg --on digits-full --seed 7 --rounds 5 \
        --set memory=examples/02_own_memory.py:Cooling
"""

from dataclasses import dataclass, replace

import numpy as np

import thalweg
from thalweg.core.types import Ints, MemoryContext
from thalweg.recipes import fedavg


@dataclass(frozen=True)
class Cooling:
    """Accept the t-th new sample with probability 1 / (1 + t / scale)."""

    scale: float = 200.0

    def init(self, capacity: int, held: int) -> int:
        return 0  # samples that have arrived so far

    def keep(self, seen: int, context: MemoryContext, rng: np.random.Generator) -> tuple[int, Ints]:
        t = seen + np.arange(context.num_new)
        accepted = rng.random(context.num_new) < 1 / (1 + t / self.scale)
        accepted[: context.capacity - context.held] = True  # fill free space first
        new = context.held + np.flatnonzero(accepted)
        positions = np.concatenate([np.arange(context.held), new])
        return seen + context.num_new, positions[-context.capacity :]  # drop the oldest


def main() -> None:
    for recipe in (fedavg(), replace(fedavg(), memory=Cooling())):
        result = thalweg.run(recipe, "digits-full", seed=7, rounds=5)
        print(f"{recipe.memory}: accuracy {result.final['accuracy']:.2f}")


if __name__ == "__main__":
    main()
