"""A server rule of one's own: how the updates of a round become the next model.

New: a rule with a memory of its own, as long as the model; it is in every checkpoint without further code.
`deltas` has a row per client, `weights` says how much each counts. (How much each counts is a rule, too:
`--set weights=...`, one method, `weigh`.) Takes about five seconds and ends with

    Momentum(keep=0.5) moved the model for 5 rounds

The same from the command line:

    thalweg run fedavg --on digits-full --set server=examples/05_own_server_rule.py:Momentum --rounds 5
"""

from dataclasses import dataclass, replace

import numpy as np

import thalweg
from thalweg.core.types import Floats, Floats32
from thalweg.core.vectors import combine
from thalweg.recipes import fedavg


@dataclass(frozen=True)
class Momentum:
    """Go on in the direction of earlier rounds (FedAvgM)."""

    keep: float = 0.5

    def init(self, num_params: int) -> Floats32:
        return np.zeros(num_params, dtype=np.float32)

    def step(
        self, velocity: Floats32, model: Floats32, deltas: Floats32, weights: Floats
    ) -> tuple[Floats32, Floats32]:
        velocity = self.keep * velocity + combine(weights, deltas)
        return velocity, model + velocity


def main() -> None:
    mine = replace(fedavg(), name="mine", server=Momentum())
    result = thalweg.run(mine, "digits-full", seed=7, rounds=5)
    print(f"{mine.server} moved the model for {result.final['round']} rounds")


if __name__ == "__main__":
    main()
