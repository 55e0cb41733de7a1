"""The reference engine: slow, one client after the other, close to the papers' pseudocode.

It is the specification. The fast engine and every other federation must give the same numbers,
up to the rounding of 32-bit arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

from thalweg.core.talk import Told
from thalweg.core.types import Answers, Floats32, Ints, Job, Roster, Updates
from thalweg.data import Augmentation, Dataset
from thalweg.engine.crowd import Crowd
from thalweg.engine.gather import Part
from thalweg.engine.node import Node
from thalweg.engine.single import SingleTrainer
from thalweg.engine.stacked import one_thread
from thalweg.engine.survey import surveyed
from thalweg.local import Euclidean, Mirror, Objective
from thalweg.nets import Net
from thalweg.recipes.federation import AskingStage
from thalweg.recipes.messages import orders_for
from thalweg.recipes.tables import updates_of


class ReferenceFederation:
    """Embedded clients, each a node that is asked in its turn."""

    def __init__(
        self,
        crowd: Crowd,
        data: Dataset,
        net: Net,
        objective: Objective,
        prequential: int,
        mirror: Mirror = Euclidean(),  # noqa: B008  frozen
        augment: Augmentation | None = None,
    ) -> None:
        self.crowd, self._prequential = crowd, prequential
        self._trainer = SingleTrainer(net, objective, crowd.clients.local, data, mirror, augment)

    def roster(self, rnd: int) -> Roster:
        return self.crowd.roster(rnd)

    @one_thread()
    def survey(self, clients: Ints, stage: AskingStage, bank: Floats32, rnd: int) -> Answers:
        return surveyed(self.crowd, clients, stage, bank, rnd, self._trainer.begin)

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, told: Told | None = None
    ) -> Updates:
        replies = []
        for order in orders_for(jobs, bank, rnd, told):
            node = Node(self.crowd.clients, order.client, self._trainer, self._prequential)
            state, reply = node.train(self.crowd.state(order.client), order)
            if not order.rehearsal:
                self.crowd.keep(order.client, state)
            replies.append(reply)
        return updates_of(replies, bank.shape[1])

    @one_thread()
    def predict(self, model: Floats32, part: Part, rows: Ints | None) -> tuple[Ints, Floats32]:
        return self._trainer.predict(model, part, rows)

    def scores(self, model: Floats32, part: Part, rows: Ints | None) -> Floats32:
        return self._trainer.scores(model, part, rows)

    def close(self) -> None:
        """Nothing to let go of."""
