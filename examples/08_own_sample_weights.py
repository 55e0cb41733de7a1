"""Sample weights: how much each stored sample counts in the local loss.

This stage runs between memory and training. With `weights=by-weight` the server weighs a client by
the sum of its sample weights, so that clients with old data count less. A reservoir keeps old
samples, so that ages differ. Takes a few seconds and prints

    None: training loss 0.017, accuracy 0.97
    HalfLife(rounds=2.0): training loss 0.027, accuracy 0.96

The second run from the command line:

    thalweg run fedavg --on digits-full --seed 7 --rounds 10 --set memory=reservoir \
        --set weights=by-weight --set sample_weights=examples/08_own_sample_weights.py:HalfLife
"""

from dataclasses import dataclass, replace

import thalweg
from thalweg.aggregation import ByWeight
from thalweg.core.types import Floats, SampleAges
from thalweg.memory import Reservoir
from thalweg.recipes import fedavg


@dataclass(frozen=True)
class HalfLife:
    """Halve the weight of a sample after a number of rounds in memory."""

    rounds: float = 2.0

    def weigh(self, samples: SampleAges) -> Floats:
        return 0.5 ** (samples.ages / self.rounds)


def main() -> None:
    equal = replace(fedavg(), memory=Reservoir(), weights=ByWeight())
    for recipe in (equal, replace(equal, sample_weights=HalfLife())):
        final = thalweg.run(recipe, "digits-full", seed=7, rounds=10).final
        loss, accuracy = final["loss"], final["accuracy"]
        print(f"{recipe.sample_weights}: training loss {loss:.3f}, accuracy {accuracy:.2f}")


if __name__ == "__main__":
    main()
