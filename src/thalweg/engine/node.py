"""One client: its stream, its data, and what it does when it is asked."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from thalweg.core.types import Floats32
from thalweg.engine.models import noise_seed
from thalweg.engine.single import SingleTrainer
from thalweg.engine.stacked import one_thread
from thalweg.federation import (
    ClientProgram,
    ClientState,
    Hello,
    SurveyRequest,
    SurveyResponse,
    TrainRequest,
    TrainResponse,
    run_client_round,
    run_client_survey,
)
from thalweg.federation.extensions.privacy import add_noise


@dataclass(frozen=True, eq=False)
class Node:
    """A client somewhere. What it remembers goes in and comes out, so that a new process loses nothing.

    The reference engine plays all clients by this class, one after the other; on a network each device has one.
    """

    clients: ClientProgram  # what any client of the recipe is, and this one's stream
    client: int
    trainer: SingleTrainer
    prequential: int  # arriving samples per tick that are predicted before they are learnt from
    has_secret_noise: bool = (
        False  # is the noise of `Recipe.privacy` drawn from the system, not the seed?
    )

    def new_client(self) -> ClientState:
        return self.clients.new_client(self.client)

    def hello(self) -> Hello:
        return Hello(self.client, self.clients.stream.supply(self.client))

    @one_thread()
    def train(self, state: ClientState, request: TrainRequest) -> tuple[ClientState, TrainResponse]:
        """Run this client's part of a round; a probe round returns the state unchanged."""
        noise = noise_seed(self.clients.seed, request.rnd, self.client, request.probe_round)
        state, response = run_client_round(
            self.clients, state, request, self.trainer, noise, self.prequential
        )
        return state, replace(response, deltas=self._add_noise(response.deltas, request))

    @one_thread()
    def answer_survey(
        self, state: ClientState, question: SurveyRequest
    ) -> tuple[ClientState, SurveyResponse]:
        """Answer a question; nobody trains."""
        state, words = run_client_survey(self.clients, state, question, self.trainer.begin)
        vectors = {name: np.asarray(vector, dtype=np.float64) for name, vector in words.items()}
        return state, SurveyResponse(question.rnd, self.client, question.stage, vectors)

    def _add_noise(self, deltas: Floats32, request: TrainRequest) -> Floats32:
        """What leaves this client of its updates."""
        clients = self.clients
        seed = None if self.has_secret_noise else clients.seed
        return add_noise(
            clients.recipe, deltas, seed, request.rnd, self.client, request.probe_round
        )
