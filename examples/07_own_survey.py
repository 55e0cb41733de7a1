"""A survey: values that clients send to the server before they train.

The rule has a server part and a client part. At the server, `choose_surveyed` returns the clients
to survey and `choose` uses their answers; at the client, `answer_survey` reads the memory. Only the
answer is sent, a few numbers by name. Takes a few seconds and prints

    Available(): accuracy 0.94, 0.65 MB sent
    ManyClasses(size=4): accuracy 0.95, 0.58 MB sent

The second run from the command line:

    thalweg run fedavg --on digits-full --seed 7 --rounds 5 \
        --set selection=examples/07_own_survey.py:ManyClasses
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
    """Choose the clients whose memory contains the most classes."""

    size: int = 4
    sends_models = False  # clients need no model to answer

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return roster.present

    def answer_survey(self, client: SurveyContext) -> tuple[None, dict[str, Floats]]:
        return None, {"classes": np.array([1.0 * len(np.unique(client.labels(client.held)))])}

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        classes = last_known(roster, "classes")[roster.present]
        return np.sort(roster.present[np.argsort(-classes, kind="stable")[: self.size]])


def main() -> None:
    for recipe in (fedavg(), replace(fedavg(), selection=ManyClasses())):
        result = thalweg.run(recipe, "digits-full", seed=7, rounds=5)
        sent = sum(row["bytes_up"] + row["bytes_down"] for row in result.metrics) / 1e6
        accuracy = result.final["accuracy"]
        print(f"{recipe.selection}: accuracy {accuracy:.2f}, {sent:.2f} MB sent")


if __name__ == "__main__":
    main()
