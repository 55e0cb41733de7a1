"""One client: its stream, its data, and what it does when it is asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.engine.noise import noise_seed
from thalweg.engine.single import SingleTrainer
from thalweg.engine.stacked import one_thread
from thalweg.local import Work
from thalweg.recipes.client import Clients, ClientState
from thalweg.recipes.messages import Answer, Hello, Order, Question, Reply
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

    def newborn(self) -> ClientState:
        return self.clients.newborn(self.client)

    def hello(self) -> Hello:
        return Hello(self.client, self.clients.stream.supply(self.client))

    @one_thread()
    def train(self, state: ClientState, order: Order) -> tuple[ClientState, Reply]:
        """Take part in a round: observe, remember, learn. A rehearsal leaves the state as it was."""
        rnd, local = order.rnd, self.clients.local
        noise = noise_seed(self.clients.seed, rnd, self.client, order.rehearsal)
        training = self.trainer.begin(order.params, noise)
        when = {"session": order.session, "rehearsal": order.rehearsal}
        visit = enter(self.clients, self.client, state, rnd, training, order.told, **when)
        pace = order.pace * local.pace(order.age)

        arriving = visit.rows_to_test(self.prequential)
        predicted, _ = self.trainer.predict(order.params, "train", arriving)

        for _ in range(self.clients.stream.ticks):
            visit.observe()  # samples arrive, some are kept
            for batch in visit.batches():  # and are learnt from
                training.step(batch, visit.memo(order.params), pace)
            visit.pause()

        losses, now = training.seen_losses, training.params()
        visit.conclude(Work(order.params, now, len(losses), local.lr * pace, local.momentum))
        said = visit.say()
        reply = Reply(
            rnd=rnd,
            client=self.client,
            model=order.model,
            delta=training.delta,
            num_samples=len(visit.rows),
            num_steps=len(losses),
            loss=float(np.mean(losses)) if losses else float("nan"),
            num_tested=len(arriving),
            num_correct=int((predicted == self.clients.labels[arriving]).sum()),
            rehearsal=order.rehearsal,
            reports={name: float(value) for name, value in visit.reports().items()},
            said={name: np.asarray(words, dtype=np.float32) for name, words in said.items()},
        )
        return state if order.rehearsal else visit.leave(), reply

    @one_thread()
    def answer(self, state: ClientState, question: Question) -> tuple[ClientState, Answer]:
        """Answer a question; nobody trains."""
        state, words = answered(self.clients, state, question, self.trainer.begin)
        vectors = {name: np.asarray(vector, dtype=np.float64) for name, vector in words.items()}
        return state, Answer(question.rnd, self.client, question.stage, vectors)
