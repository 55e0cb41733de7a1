"""One client: its stream, its data, and what it does when it is asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.types import Floats32, Ints
from thalweg.engine.models import noise_seed
from thalweg.engine.single import SingleTrainer, Training
from thalweg.engine.stacked import one_thread
from thalweg.federation.client_round import start_round
from thalweg.federation.client_state import ClientProgram, ClientState
from thalweg.federation.client_survey import run_client_survey
from thalweg.federation.extensions.privacy import add_noise
from thalweg.federation.messages import (
    Hello,
    SurveyRequest,
    SurveyResponse,
    TrainRequest,
    TrainResponse,
)
from thalweg.federation.tables import stack_uploads
from thalweg.local import TrainingSummary


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
    def train(self, state: ClientState, order: TrainRequest) -> tuple[ClientState, TrainResponse]:
        """Take part in a round: observe, remember, learn. A rehearsal leaves the state as it was."""
        rnd, places = order.rnd, range(len(order.models))
        noise = noise_seed(self.clients.seed, rnd, self.client, order.probe_round)
        trainings = [self.trainer.begin(params, noise) for params in order.params]
        when = {"session": order.session, "probe_round": order.probe_round}
        visit = start_round(
            self.clients,
            self.client,
            state,
            rnd,
            trainings,
            order.broadcast,
            **when,
            models=order.models.tolist(),
        )
        lr_scales = [
            lr_scale * self.clients.local.lr_scale(order.age)
            for lr_scale in order.lr_scales.tolist()
        ]

        arriving = visit.rows_to_test(self.prequential)
        predicted, _ = self.trainer.predict(order.params[visit.main_model], "train", arriving)

        for _ in range(self.clients.stream.ticks):
            visit.observe()  # samples arrive, some are kept
            if self.clients.bank_with_split is not None:  # and divided among the models
                visit.split_samples(self._losses(order, visit.rows))
            for place in places:
                for batch in visit.batches(place):  # and are learnt from
                    memo = visit.memo(order.params[place], place)
                    trainings[place].step(batch, memo, lr_scales[place])
            visit.end_tick()

        for place in places:
            visit.finish_round(
                self._make_work(order, trainings[place], place, lr_scales[place]), place
            )
        uploads = [visit.upload(place) for place in places]
        reports = [visit.reports(place) for place in places]
        is_main = np.arange(len(places)) == visit.main_model
        correct = (predicted == self.clients.labels[arriving]).sum()
        reply = TrainResponse(
            rnd=rnd,
            client=self.client,
            models=order.models,
            deltas=self._add_noise(np.stack([training.delta for training in trainings]), order),
            num_samples=len(visit.rows),
            num_steps=np.array([len(training.seen_losses) for training in trainings]),
            losses=np.array([training.mean_loss for training in trainings]),
            num_tested=is_main * len(arriving),
            num_correct=is_main * int(correct),
            probe_round=order.probe_round,
            reports={
                name: np.array([each[name] for each in reports], float) for name in reports[0]
            },
            uploads=stack_uploads(uploads),
        )
        return state if order.probe_round else visit.finish(), reply

    @one_thread()
    def answer_survey(
        self, state: ClientState, question: SurveyRequest
    ) -> tuple[ClientState, SurveyResponse]:
        """Answer a question; nobody trains."""
        state, words = run_client_survey(self.clients, state, question, self.trainer.begin)
        vectors = {name: np.asarray(vector, dtype=np.float64) for name, vector in words.items()}
        return state, SurveyResponse(question.rnd, self.client, question.stage, vectors)

    def _add_noise(self, deltas: Floats32, order: TrainRequest) -> Floats32:
        """What leaves this client of its updates."""
        clients = self.clients
        seed = None if self.has_secret_noise else clients.seed
        return add_noise(clients.recipe, deltas, seed, order.rnd, self.client, order.probe_round)

    def _losses(self, order: TrainRequest, rows: Ints) -> Floats32:
        """(J, held) of the models as they were received."""
        return np.stack([self.trainer.predict(each, "train", rows)[1] for each in order.params])

    def _make_work(
        self, order: TrainRequest, training: Training, place: int, lr_scale: float
    ) -> TrainingSummary:
        local, num_steps = self.clients.local, len(training.seen_losses)
        start, now = order.params[place], training.params()
        return TrainingSummary(start, now, num_steps, local.lr * lr_scale, local.momentum)
