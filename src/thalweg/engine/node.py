"""One client: its stream, its data, and what it does when it is asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.types import Floats32, Ints
from thalweg.engine.noise import noise_seed
from thalweg.engine.single import SingleTrainer, Training
from thalweg.engine.stacked import one_thread
from thalweg.local import Work
from thalweg.recipes.client import Clients, ClientState
from thalweg.recipes.hiding import hidden
from thalweg.recipes.messages import Answer, Hello, Order, Question, Reply
from thalweg.recipes.tables import side_by_side
from thalweg.recipes.view import answered
from thalweg.recipes.visit import enter


@dataclass(frozen=True, eq=False)
class Node:
    """A client somewhere. What it remembers goes in and comes out, so that a new process loses nothing.

    The reference engine plays all clients by this class, one after the other; on a network each device has one.
    """

    clients: Clients  # what any client of the recipe is, and this one's stream
    client: int
    trainer: SingleTrainer
    prequential: int  # arriving samples per tick that are predicted before they are learnt from
    is_secret: bool = False  # is the noise of `Recipe.privacy` drawn from the system, not the seed?

    def newborn(self) -> ClientState:
        return self.clients.newborn(self.client)

    def hello(self) -> Hello:
        return Hello(self.client, self.clients.stream.supply(self.client))

    @one_thread()
    def train(self, state: ClientState, order: Order) -> tuple[ClientState, Reply]:
        """Take part in a round: observe, remember, learn. A rehearsal leaves the state as it was."""
        rnd, places = order.rnd, range(len(order.models))
        noise = noise_seed(self.clients.seed, rnd, self.client, order.rehearsal)
        trainings = [self.trainer.begin(params, noise) for params in order.params]
        when = {"session": order.session, "rehearsal": order.rehearsal}
        visit = enter(
            self.clients,
            self.client,
            state,
            rnd,
            trainings,
            order.told,
            **when,
            models=order.models.tolist(),
        )
        paces = [pace * self.clients.local.pace(order.age) for pace in order.paces.tolist()]

        arriving = visit.rows_to_test(self.prequential)
        predicted, _ = self.trainer.predict(order.params[visit.main], "train", arriving)

        for _ in range(self.clients.stream.ticks):
            visit.observe()  # samples arrive, some are kept
            if self.clients.dividing is not None:  # and divided among the models
                visit.divide(self._losses(order, visit.rows))
            for place in places:
                for batch in visit.batches(place):  # and are learnt from
                    memo = visit.memo(order.params[place], place)
                    trainings[place].step(batch, memo, paces[place])
            visit.pause()

        for place in places:
            visit.conclude(self._work(order, trainings[place], place, paces[place]), place)
        said = [visit.say(place) for place in places]
        reports = [visit.reports(place) for place in places]
        is_main = np.arange(len(places)) == visit.main
        correct = (predicted == self.clients.labels[arriving]).sum()
        reply = Reply(
            rnd=rnd,
            client=self.client,
            models=order.models,
            deltas=self._hidden(np.stack([training.delta for training in trainings]), order),
            num_samples=len(visit.rows),
            num_steps=np.array([len(training.seen_losses) for training in trainings]),
            losses=np.array([training.mean_loss for training in trainings]),
            num_tested=is_main * len(arriving),
            num_correct=is_main * int(correct),
            rehearsal=order.rehearsal,
            reports={
                name: np.array([each[name] for each in reports], float) for name in reports[0]
            },
            said=side_by_side(said),
        )
        return state if order.rehearsal else visit.leave(), reply

    @one_thread()
    def answer(self, state: ClientState, question: Question) -> tuple[ClientState, Answer]:
        """Answer a question; nobody trains."""
        state, words = answered(self.clients, state, question, self.trainer.begin)
        vectors = {name: np.asarray(vector, dtype=np.float64) for name, vector in words.items()}
        return state, Answer(question.rnd, self.client, question.stage, vectors)

    def _hidden(self, deltas: Floats32, order: Order) -> Floats32:
        """What leaves this client of its updates."""
        clients = self.clients
        seed = None if self.is_secret else clients.seed
        return hidden(clients.recipe, deltas, seed, order.rnd, self.client, order.rehearsal)

    def _losses(self, order: Order, rows: Ints) -> Floats32:
        """(J, held) of the models as they were received."""
        return np.stack([self.trainer.predict(each, "train", rows)[1] for each in order.params])

    def _work(self, order: Order, training: Training, place: int, pace: float) -> Work:
        local, num_steps = self.clients.local, len(training.seen_losses)
        start, now = order.params[place], training.params()
        return Work(start, now, num_steps, local.lr * pace, local.momentum)
