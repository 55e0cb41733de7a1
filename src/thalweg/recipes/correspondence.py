"""The server's side of a network: questions and orders go out as bytes, and what comes back is sorted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from thalweg.core.errors import BadMessage, ConfigError, Diverged
from thalweg.core.talk import Told
from thalweg.core.types import Answers, Floats32, Ints, Job, Roster, Updates
from thalweg.recipes.federation import AskingStage
from thalweg.recipes.messages import Order, Question, orders_for
from thalweg.recipes.tables import of_one_form, of_one_length, tabled, updates_of
from thalweg.recipes.wire import Terms, answer_to, reply_to, to_bytes

Asked = TypeVar("Asked", Order, Question)
Came = TypeVar("Came")
Letter = tuple[int, bytes]  # to a client, or from one


class Post(Protocol):
    """Carries bytes to clients and back; all that a network has to offer."""

    def __call__(self, letters: Iterable[Letter]) -> Iterable[Letter]:
        """Send each client its letter; what comes back, with its sender, until the round is closed.

        In any order; some may be missing, come twice, or be late ones of an earlier round. The sender is who
        the network knows it to be, not who it says it is.
        """
        ...


class Correspondence:
    """A `Federation` of clients at the other end of a network.

    What cannot be used is refused and the round goes on without it: whose message is damaged, late or of
    another form than the others' counts as not heard. Only if there is nothing but numbers that are not
    finite does the run stop, as it would with clients in this process.
    """

    def __init__(self, terms: Terms, post: Post, roster: Callable[[int], Roster]) -> None:
        self._terms, self._post, self.roster = terms, post, roster
        self.refused: list[str] = []  # in the last round, and why
        self._refusing: list[str] = []  # in this round

    def survey(self, clients: Ints, stage: AskingStage, bank: Floats32, rnd: int) -> Answers:
        policy = self._terms.asking[stage]
        shown = bank if policy.shows_models else bank[:0]
        questions = {client: Question(rnd, client, stage, shown) for client in clients.tolist()}
        answers = self._exchange(questions, answer_to)
        words = [answers[client].words if client in answers else {} for client in questions]
        return tabled(of_one_length(words), type(policy).__name__)

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, told: Told | None = None
    ) -> Updates:
        orders = {order.client: order for order in orders_for(jobs, bank, rnd, told)}
        if len(orders) < len(jobs):
            raise ConfigError("over a network a client can train one model per round, not several.")
        replies = self._exchange(orders, reply_to)
        alike = of_one_form([replies[client] for client in orders if client in replies])
        for client in sorted(replies.keys() - {reply.client for reply in alike}):
            self._refusing.append(f"client {client}: its reply has not the form of the others'.")
        self.refused, self._refusing = self._refusing, []
        remarks = {"refused": len(self.refused)} if self.refused else {}
        return replace(updates_of(alike, bank.shape[1]), remarks=remarks)

    def _exchange(
        self, asked: Mapping[int, Asked], read: Callable[[Asked, bytes, Terms], Came]
    ) -> dict[int, Came]:
        """What was heard in time, by client."""
        # One at a time: a cohort's models together may be larger than the memory.
        letters = ((client, to_bytes(message, self._terms)) for client, message in asked.items())
        came: dict[int, Came] = {}
        diverged: Diverged | None = None
        for sender, payload in self._post(letters):
            try:
                if sender not in asked or sender in came:
                    raise BadMessage("nobody asked, or it has answered already.")
                came[sender] = read(asked[sender], payload, self._terms)
            except (BadMessage, Diverged) as error:
                self._refusing.append(f"client {sender}: {error}")
                diverged = error if isinstance(error, Diverged) else diverged
        if diverged is not None and not came:
            raise diverged
        return came
