"""One client: trains and answers surveys, given its state, its stream and its data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.engine.single import SingleTrainer
from thalweg.engine.stacked import one_thread
from thalweg.engine.step_seeds import noise_seed
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
from thalweg.federation.extensions.privacy import protect_response


class PredictionTotals(NamedTuple):
    """Predictions that a client made before the round."""

    tested: int
    correct: int
    error_sum: float


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
    def train(
        self, state: ClientState, request: TrainRequest, earlier: PredictionTotals | None = None
    ) -> tuple[ClientState, TrainResponse]:
        """Run this client's part of a round; a probe round returns the state unchanged.

        `earlier` are predictions between rounds, which the response includes.
        """
        noise = noise_seed(self.clients.seed, request.rnd, self.client, request.probe_round)
        after, response = run_client_round(
            self.clients, state, request, self.trainer, noise, self.prequential
        )
        if earlier is not None:
            is_main = np.arange(len(response.models)) == self.main_model(state, request)
            response = _add_tests(response, is_main, earlier)
        return after, protect_response(self.clients, response, request.probe_round)

    def main_model(self, state: ClientState, request: TrainRequest) -> int:
        """Return the index of the model that predicts for this client before the round."""
        return self.clients.main_model(state.split, request.models, request.broadcast)

    @one_thread()
    def answer_survey(
        self, state: ClientState, request: SurveyRequest
    ) -> tuple[ClientState, SurveyResponse]:
        """Answer a survey; the client does not train."""
        state, values = run_client_survey(self.clients, state, request, self.trainer.begin)
        vectors = {name: np.asarray(vector, dtype=np.float64) for name, vector in values.items()}
        return state, SurveyResponse(request.rnd, self.client, request.stage, vectors)


def _add_tests(
    response: TrainResponse, is_main: npt.NDArray[np.bool_], earlier: PredictionTotals
) -> TrainResponse:
    """Return the response with earlier predictions of the main model."""
    sums = response.error_sums
    return replace(
        response,
        num_tested=response.num_tested + is_main * earlier.tested,
        num_correct=response.num_correct + is_main * earlier.correct,
        error_sums=None if sums is None else sums + is_main * earlier.error_sum,
    )
