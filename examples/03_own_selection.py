"""A selection rule of one's own: who takes part in a round.

New: a rule sees the roster, which says who is here and what the server remembers of everybody, and
answers with the ids of some of them. Takes about five seconds and ends with

    Struggling(share=0.3): 2 clients took part in the last round

The same from the command line:

    thalweg run fedavg --on digits-full --set selection=examples/03_own_selection.py:Struggling --rounds 5
"""

from dataclasses import dataclass, replace

import numpy as np

import thalweg
from thalweg.core.types import Ints, Roster
from thalweg.recipes import fedavg
from thalweg.selection import cohort_size, last_known


@dataclass(frozen=True)
class Struggling:
    """Those whose last training loss was largest; who has never trained comes first."""

    share: float = 0.3

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        loss = np.nan_to_num(last_known(roster, "loss")[roster.present], nan=np.inf)
        largest_first = roster.present[np.argsort(-loss, kind="stable")]
        return np.sort(largest_first[: cohort_size(self.share, len(roster.present))])


def main() -> None:
    mine = replace(fedavg(), name="mine", selection=Struggling())
    result = thalweg.run(mine, "digits-full", seed=7, rounds=5)
    print(f"{mine.selection}: {result.final['cohort']} clients took part in the last round")


if __name__ == "__main__":
    main()
