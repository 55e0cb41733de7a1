"""The server's side of a network: questions and orders go out as bytes, and what comes back is sorted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np

from thalweg.core.errors import BadMessage, Diverged
from thalweg.core.talk import Told
from thalweg.core.types import Answers, Floats32, Ints, Job, Refusal, Roster, Updates
from thalweg.recipes.door import NO_ORDERS, longest_wait
from thalweg.recipes.federation import AskingStage
from thalweg.recipes.limits import Limits, check_answer, check_reply, too_long
from thalweg.recipes.messages import (
    Answer,
    Errand,
    News,
    Order,
    Question,
    Reply,
    Token,
    orders_for,
)
from thalweg.recipes.tables import of_one_form, of_one_length, tabled, updates_of
from thalweg.recipes.wire import Terms, check_fits, news_from, to_bytes

Came = TypeVar("Came", Reply, Answer, Token)
Letter = tuple[int, bytes]  # to a client, or from one
NOTHING: Floats32 = np.empty(
    (0, 0), dtype=np.float32
)  # of an open order the models' numbers will do


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

    What cannot be used is refused and the round goes on without it: whose message is damaged, or of another
    form than the others', or claims what its `Limits` or the recipe's policies do not believe, counts as not
    heard. A reply to an order of an earlier round is handed on with the
    replies of the next one, if the recipe's rule of staleness wants it. Only if all that were asked, and more than
    one, send numbers that are not finite does the run stop, as it would with clients in this process: a single one
    may have invented them.
    """

    def __init__(
        self,
        terms: Terms,
        post: Post,
        roster: Callable[[int], Roster],
        awaited: Ints = NO_ORDERS,
        limits: Limits | None = None,
    ) -> None:
        """`awaited` are the open orders of a run that goes on, `ServerState.awaited`."""
        self._limits = limits or Limits()
        self._terms, self._post, self.roster = terms, post, roster
        self._patience = longest_wait(terms.recipe.staleness)
        self._open: dict[int, dict[int, Order]] = {}  # by client and round; what is left of them
        for client, rnd in awaited.tolist():
            model = np.zeros(1, dtype=np.int64)
            self._keep_open(Order(rnd, client, model, np.ones(1), NOTHING))
        self._belated: dict[tuple[int, int], Reply] = {}  # by client and round, until they are used
        self.refused: list[str] = []  # in the last round, and why
        self._refusing: list[Refusal] = []  # in this round

    def survey(self, clients: Ints, stage: AskingStage, bank: Floats32, rnd: int) -> Answers:
        policy = self._terms.asking[stage]
        shown = bank if policy.shows_models else bank[:0]
        questions = {client: Question(rnd, client, stage, shown) for client in clients.tolist()}
        answers = self._exchange(questions, Answer, rnd)
        words = [answers[client].words if client in answers else {} for client in questions]
        alike = of_one_length(words)
        for client, said, kept in zip(questions, words, alike, strict=True):
            if len(kept) < len(said):
                self._refuse(client, "Answer: it has not the length of the others'.")
        return tabled(alike, type(policy).__name__)

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, told: Told | None = None
    ) -> Updates:
        orders = {order.client: order for order in orders_for(jobs, bank, rnd, told)}
        remarks: dict[str, int] = {}
        heard = self._heard(orders, rnd, remarks)
        replies = [heard[client] for client in orders if client in heard]
        is_rehearsal = jobs[0].rehearsal > 0
        if not is_rehearsal:
            replies += [self._belated.pop(key) for key in sorted(self._belated)]
        alike = self._usual(replies)
        if not is_rehearsal:
            self._close(replies, rnd)
            for client in orders.keys() - heard.keys():
                self._keep_open(orders[client])
        refusals, self._refusing = tuple(self._refusing), []
        self.refused = [str(refusal) for refusal in refusals]
        remarks |= {"refused": len(refusals)} if refusals else {}
        updates = updates_of(alike, bank.shape[1], rnd)
        return replace(updates, remarks=remarks, refusals=refusals)

    def _heard(
        self, orders: Mapping[int, Order], rnd: int, remarks: dict[str, int]
    ) -> dict[int, Reply]:
        """Replies by client; if updates are masked, everybody's is the mean, as in `recipes.sums`."""
        if self._terms.recipe.secrecy is None:
            return self._exchange(orders, Reply, rnd)
        from thalweg.recipes.unmasking import masked_round  # needs a package that not everybody has

        outcome = masked_round(
            self._terms.recipe,
            orders,
            lambda calls: self._exchange(calls, Token, rnd),
            lambda circled: self._exchange(circled, Reply, rnd),
        )
        if outcome.remark:
            remarks[outcome.remark] = 1
        self._refusing += outcome.refusals
        return {reply.client: reply for reply in outcome.replies}

    def _usual(self, replies: Sequence[Reply]) -> list[Reply]:
        """Those that can be set beside each other, and are not much longer than most."""
        longer = too_long(replies, self._limits)
        for place, reason in longer.items():
            self._refuse(replies[place].client, reason)
        usual = [reply for place, reply in enumerate(replies) if place not in longer]
        alike = of_one_form(usual)
        for reply in usual:
            if reply not in alike:
                self._refuse(reply.client, "its reply has not the form of the others'.")
        return alike

    def _refuse(self, client: int, reason: str) -> None:
        self._refusing.append(Refusal(client, reason))

    def _exchange(self, asked: Mapping[int, Errand], kind: type[Came], rnd: int) -> dict[int, Came]:
        """What was heard in time, by client; late replies are put aside."""
        # One at a time: a cohort's models together may be larger than the memory.
        letters = ((client, to_bytes(message, self._terms)) for client, message in asked.items())
        came: dict[int, Came] = {}
        diverged: dict[int, Diverged] = {}
        for sender, payload in self._post(letters):
            is_awaited = sender in asked and sender not in came
            try:
                if not is_awaited and sender not in self._open:
                    raise BadMessage("nobody asked, or it has answered already.")
                message = news_from(payload, self._terms)
                if self._put_aside(sender, message, rnd):
                    continue
                if not is_awaited:
                    raise BadMessage("nobody asked, or it has answered already.")
                self._check(message, asked[sender])
                assert isinstance(message, kind)
                came[sender] = message
            except (BadMessage, Diverged) as error:
                self._refuse(sender, str(error))
                if isinstance(error, Diverged) and is_awaited:
                    diverged[sender] = error
        if len(diverged) == len(asked) > 1:
            raise next(iter(diverged.values()))
        return came

    def _check(self, message: News, asked: Errand) -> None:
        """Is it what was asked for, and can it be true?"""
        check_fits(message, asked)
        recipe, limits = self._terms.recipe, self._limits
        if isinstance(message, Reply) and isinstance(asked, Order):
            check_reply(message, asked, recipe, limits)
        elif isinstance(message, Answer) and isinstance(asked, Question):
            check_answer(message, asked, recipe, limits)

    # --- orders that nobody has answered yet ---

    def _put_aside(self, sender: int, message: News, rnd: int) -> bool:
        """Is it the reply to an open order of an earlier round? Then it is kept for the next replies."""
        order = self._open.get(sender, {}).get(message.rnd)
        key = (sender, message.rnd)
        if order is None or key in self._belated or rnd - message.rnd > self._patience:
            return False
        self._check(message, order)
        if isinstance(message, Reply):
            self._belated[key] = message
        return True

    def _keep_open(self, order: Order) -> None:
        if self._patience:
            self._open.setdefault(order.client, {})[order.rnd] = replace(
                order,
                params=NOTHING,
                told={stage: words for stage, words in order.told.items() if stage == "bank"},
            )

    def _close(self, replies: Iterable[Reply], rnd: int) -> None:
        """Forget orders that are answered, that a newer reply has overtaken, or that are too old."""
        newest: dict[int, int] = {}
        for reply in replies:
            newest[reply.client] = max(newest.get(reply.client, -1), reply.rnd)
        self._open = {
            client: still
            for client, orders in self._open.items()
            if (
                still := {
                    then: order
                    for then, order in orders.items()
                    if then > newest.get(client, -1) and rnd - then < self._patience
                }
            )
        }
