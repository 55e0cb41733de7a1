"""An emphasis of one's own: how much each kept sample counts.

New: a stage between memory and training. With `weights=by-weight` a client counts by the sum of what its
samples count, so that one with old data only has less of a say. Takes about five seconds and ends with

    HalfLife(rounds=2.0) ran for 5 rounds

The same from the command line:

    thalweg run fedavg --on digits-full --set sample_weights=examples/08_own_emphasis.py:HalfLife \
        --set weights=by-weight --rounds 5
"""

from dataclasses import dataclass, replace

import thalweg
from thalweg.aggregation import ByWeight
from thalweg.core.types import Floats, SampleAges
from thalweg.recipes import fedavg


@dataclass(frozen=True)
class HalfLife:
    """A sample counts half as much after some rounds in memory."""

    rounds: float = 2.0

    def weigh(self, holding: SampleAges) -> Floats:
        return 0.5 ** (holding.ages / self.rounds)


def main() -> None:
    mine = replace(fedavg(), name="mine", sample_weights=HalfLife(), weights=ByWeight())
    result = thalweg.run(mine, "digits-full", seed=7, rounds=5)
    print(f"{mine.sample_weights} ran for {result.final['round']} rounds")


if __name__ == "__main__":
    main()
