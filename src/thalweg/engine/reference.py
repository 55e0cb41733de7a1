"""The reference engine: one client after the other, close to the pseudocode of the papers.

It is slow and serves as the specification: the fast engine and every other federation must give the
same numbers, up to the rounding of 32-bit arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

from thalweg.core.capabilities import Broadcast
from thalweg.core.types import Floats32, Ints, Job, Roster, SurveyResponses, Updates
from thalweg.data import Part
from thalweg.data.base import Targets
from thalweg.engine.client_pool import ClientPool
from thalweg.engine.node import Node
from thalweg.engine.single import SingleTrainer
from thalweg.engine.stacked import one_thread
from thalweg.federation import SurveyStage, build_updates, make_train_requests


class ReferenceFederation:
    """Runs all clients in this process, one after the other, each as a `Node`."""

    def __init__(
        self,
        client_pool: ClientPool,
        trainer: SingleTrainer,
        prequential: int,
    ) -> None:
        self.client_pool, self._trainer, self._prequential = client_pool, trainer, prequential

    def roster(self, rnd: int) -> Roster:
        return self.client_pool.roster(rnd)

    def true_concepts(self, rnd: int) -> Ints:
        return self.client_pool.true_concepts(rnd)

    @one_thread()
    def survey(
        self, clients: Ints, stage: SurveyStage, bank: Floats32, rnd: int
    ) -> SurveyResponses:
        return self.client_pool.survey(clients, stage, bank, rnd, self._trainer.begin)

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        responses = []
        for request in make_train_requests(jobs, bank, rnd, broadcast):
            node = Node(self.client_pool.clients, request.client, self._trainer, self._prequential)
            state, response = node.train(self.client_pool.state(request.client), request)
            if not request.probe_round:
                self.client_pool.set_state(request.client, state)
            responses.append(response)
        return build_updates(responses, bank.shape[1])

    @one_thread()
    def predict_many(
        self, models: Floats32, part: Part, rows: Ints | None
    ) -> tuple[Targets, Floats32]:
        return self._trainer.predict_many(models, part, rows)

    def scores_many(self, models: Floats32, part: Part, rows: Ints | None) -> Floats32:
        return self._trainer.scores_many(models, part, rows)

    def close(self) -> None:
        """Nothing to close."""
