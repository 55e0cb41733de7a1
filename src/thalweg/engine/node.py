"""One client: trains and answers surveys, given its state, its stream and its data."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

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
    """A client without state: methods take the client's state and return the new one.

    The reference engine runs all clients with this class, one after the other. On a network each
    device has one.
    """

    clients: ClientProgram  # the program of all clients, with this client's stream
    client: int
    trainer: SingleTrainer
    prequential: int  # arriving samples per tick that are predicted before training

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
        deltas = add_noise(
            self.clients, response.deltas, request.rnd, self.client, request.probe_round
        )
        return state, replace(response, deltas=deltas)

    @one_thread()
    def answer_survey(
        self, state: ClientState, request: SurveyRequest
    ) -> tuple[ClientState, SurveyResponse]:
        """Answer a survey; the client does not train."""
        state, values = run_client_survey(self.clients, state, request, self.trainer.begin)
        vectors = {name: np.asarray(vector, dtype=np.float64) for name, vector in values.items()}
        return state, SurveyResponse(request.rnd, self.client, request.stage, vectors)
