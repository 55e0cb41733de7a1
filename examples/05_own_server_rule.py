"""A server rule: how the updates of a round change the model.

This rule has a state, a vector as long as the model. Checkpoints contain it without further code.
`deltas` has one row per client and `weights` one number per client. (How the weights are computed
is a stage of its own: `--set weights=...`, one method, `weigh`.) Takes a few seconds and prints

    Step(lr=1.0, radius=None, decay=None): accuracy 0.94
    Momentum(decay=0.5): accuracy 0.96

The second run from the command line:

    thalweg run fedavg --on digits-full --seed 7 --rounds 5 \
        --set server=examples/05_own_server_rule.py:Momentum
"""

from dataclasses import dataclass, replace

import numpy as np

import thalweg
from thalweg.core.types import Floats, Floats32
from thalweg.core.vectors import combine
from thalweg.recipes import fedavg


@dataclass(frozen=True)
class Momentum:
    """Move along a decaying sum of the mean updates of all rounds (FedAvgM)."""

    decay: float = 0.5

    def init(self, num_params: int) -> Floats32:
        return np.zeros(num_params, dtype=np.float32)

    def step(
        self, velocity: Floats32, model: Floats32, deltas: Floats32, weights: Floats
    ) -> tuple[Floats32, Floats32]:
        velocity = self.decay * velocity + combine(weights, deltas)
        return velocity, model + velocity


def main() -> None:
    for recipe in (fedavg(), replace(fedavg(), server=Momentum())):
        result = thalweg.run(recipe, "digits-full", seed=7, rounds=5)
        print(f"{recipe.server}: accuracy {result.final['accuracy']:.2f}")


if __name__ == "__main__":
    main()
