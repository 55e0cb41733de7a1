"""A question to the clients before they train.

New: a rule with two halves. At the server, `choose_surveyed` says who is asked and `choose` decides with the answers;
at the client, `answer` sees what the client holds. Only the answer travels, a few numbers by name. Takes
about five seconds and ends with

    ManyClasses(size=4): 4 clients took part in the last round

The same from the command line:

    thalweg run fedavg --on digits-full --set selection=examples/07_own_question.py:ManyClasses --rounds 5
"""

from dataclasses import dataclass, replace

import numpy as np

import thalweg
from thalweg.core.capabilities import SurveyContext
from thalweg.core.types import Floats, Ints, Roster
from thalweg.recipes import fedavg
from thalweg.selection import last_known


@dataclass(frozen=True)
class ManyClasses:
    """The clients with samples of most classes."""

    size: int = 4
    sends_models = False  # no model is needed to answer

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return roster.present

    def answer_survey(self, view: SurveyContext) -> tuple[None, dict[str, Floats]]:
        return None, {"classes": np.array([1.0 * len(np.unique(view.labels(view.held)))])}

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        classes = last_known(roster, "classes")[roster.present]
        return np.sort(roster.present[np.argsort(-classes, kind="stable")[: self.size]])


def main() -> None:
    mine = replace(fedavg(), name="mine", selection=ManyClasses())
    result = thalweg.run(mine, "digits-full", seed=7, rounds=5)
    print(f"{mine.selection}: {result.final['cohort']} clients took part in the last round")


if __name__ == "__main__":
    main()
