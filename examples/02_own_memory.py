"""A memory policy of one's own: what each client keeps when samples arrive.

New: a policy is a frozen dataclass. It never sees samples, only small numbers about them, and answers
with the positions that stay: 0 .. held-1 are what the client holds, then come the new ones. What it must
remember goes in and comes out. Takes about five seconds and ends with

    Cooling(pace=200.0) ran for 5 rounds

The same from the command line:

    thalweg run fedavg --on digits-full --set memory=examples/02_own_memory.py:Cooling --rounds 5
"""

from dataclasses import dataclass, replace

import numpy as np

import thalweg
from thalweg.core.types import Ints, MemoryContext
from thalweg.recipes import fedavg


@dataclass(frozen=True)
class Cooling:
    """Let ever fewer new samples in: of those that come after t others, a share of 1 / (1 + t / pace)."""

    pace: float = 200.0

    def init(self, capacity: int, held: int) -> int:
        return 0  # samples that have arrived so far

    def keep(self, seen: int, intake: MemoryContext, rng: np.random.Generator) -> tuple[int, Ints]:
        t = seen + np.arange(intake.num_new)
        enters = rng.random(intake.num_new) < 1 / (1 + t / self.pace)
        enters[: intake.capacity - intake.held] = True  # free places are filled first
        newcomers = intake.held + np.flatnonzero(enters)
        positions = np.concatenate([np.arange(intake.held), newcomers])
        return seen + intake.num_new, positions[-intake.capacity :]  # the oldest leave


def main() -> None:
    mine = replace(fedavg(), name="mine", memory=Cooling())
    result = thalweg.run(mine, "digits-full", seed=7, rounds=5)
    print(f"{mine.memory} ran for {result.final['round']} rounds")


if __name__ == "__main__":
    main()
