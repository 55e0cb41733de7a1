"""A selection rule: which clients take part in a round.

A rule receives the roster: the clients that are present in this round and the values that the
server has stored for each client. It returns the ids of the chosen clients. Takes a few seconds and
prints

    Available(): accuracy 0.94, 0.65 MB sent
    LargestLoss(share=0.3): accuracy 0.92, 0.27 MB sent

The second run from the command line:

    thalweg run fedavg --on digits-full --seed 7 --rounds 5 \
        --set selection=examples/03_own_selection.py:LargestLoss
"""

from dataclasses import dataclass, replace

import numpy as np

import thalweg
from thalweg.core.types import Ints, Roster
from thalweg.recipes import fedavg
from thalweg.selection import cohort_size, last_known


@dataclass(frozen=True)
class LargestLoss:
    """Choose the clients with the largest last training loss; untrained clients come first."""

    share: float = 0.3

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        loss = np.nan_to_num(last_known(roster, "loss")[roster.present], nan=np.inf)
        largest_first = roster.present[np.argsort(-loss, kind="stable")]
        return np.sort(largest_first[: cohort_size(self.share, len(roster.present))])


def main() -> None:
    for recipe in (fedavg(), replace(fedavg(), selection=LargestLoss())):
        result = thalweg.run(recipe, "digits-full", seed=7, rounds=5)
        sent = sum(row["bytes_up"] + row["bytes_down"] for row in result.metrics) / 1e6
        accuracy = result.final["accuracy"]
        print(f"{recipe.selection}: accuracy {accuracy:.2f}, {sent:.2f} MB sent")


if __name__ == "__main__":
    main()
