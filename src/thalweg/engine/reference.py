"""The reference engine: slow, one client after the other, close to the papers' pseudocode.

It is the specification. The fast engine and every other federation must give the same numbers,
up to the rounding of 32-bit arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

from thalweg.core.capabilities import Broadcast
from thalweg.core.types import Floats32, Ints, Job, Roster, SurveyResponses, Updates
from thalweg.data import Augmentation, Dataset
from thalweg.engine.client_pool import ClientPool
from thalweg.engine.gather import Part
from thalweg.engine.node import Node
from thalweg.engine.single import SingleTrainer
from thalweg.engine.stacked import one_thread
from thalweg.engine.survey import run_survey
from thalweg.federation.base import SurveyStage
from thalweg.federation.messages import make_train_requests
from thalweg.federation.tables import build_updates
from thalweg.local import Euclidean, Geometry, Objective
from thalweg.nets import Net


class ReferenceFederation:
    """Embedded clients, each a node that is asked in its turn."""

    def __init__(
        self,
        client_pool: ClientPool,
        data: Dataset,
        net: Net,
        objective: Objective,
        prequential: int,
        geometry: Geometry = Euclidean(),  # noqa: B008  frozen
        augment: Augmentation | None = None,
    ) -> None:
        self.client_pool, self._prequential = client_pool, prequential
        self._trainer = SingleTrainer(
            net, objective, client_pool.clients.local, data, geometry, augment
        )

    def roster(self, rnd: int) -> Roster:
        return self.client_pool.roster(rnd)

    @one_thread()
    def survey(
        self, clients: Ints, stage: SurveyStage, bank: Floats32, rnd: int
    ) -> SurveyResponses:
        return run_survey(self.client_pool, clients, stage, bank, rnd, self._trainer.begin)

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        replies = []
        for order in make_train_requests(jobs, bank, rnd, broadcast):
            node = Node(self.client_pool.clients, order.client, self._trainer, self._prequential)
            state, reply = node.train(self.client_pool.state(order.client), order)
            if not order.probe_round:
                self.client_pool.set_state(order.client, state)
            replies.append(reply)
        return build_updates(replies, bank.shape[1])

    @one_thread()
    def predict(self, model: Floats32, part: Part, rows: Ints | None) -> tuple[Ints, Floats32]:
        return self._trainer.predict(model, part, rows)

    def scores(self, model: Floats32, part: Part, rows: Ints | None) -> Floats32:
        return self._trainer.scores(model, part, rows)

    def close(self) -> None:
        """Nothing to let go of."""
