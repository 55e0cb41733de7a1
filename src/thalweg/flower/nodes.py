"""Who is connected, and which client of the run that is: the server's side of joining.

Nothing here waits: every look greets those who are new, reads what came back, and takes the next step with each.
A node that does not answer, or whose daemon is not up yet, is greeted again a little later; so is one that was
refused, but seldom: somebody else may live there by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from flwr.serverapp import Grid

from thalweg.core.errors import BadMessage, Diverged
from thalweg.edge.socket import Parcel
from thalweg.flower.book import ClientBook
from thalweg.flower.carrier import Carrier
from thalweg.recipes.joining import (
    Greeting,
    Introduction,
    Invitation,
    Refusal,
    check_versions,
    letter_from,
    letter_of,
)
from thalweg.recipes.messages import Hello
from thalweg.recipes.wire import Terms, from_bytes

ANSWER_S = 120.0  # that a node may take for a letter of joining; the first one loads its data
RETRY_S, MOST_RETRY_S = (
    1.0,
    60.0,
)  # until a node that did not answer is greeted again, at first and at most
SETTLE_S = 10.0  # that a round waits for somebody who is just joining
GHOST_S = 90.0  # after which Flower knows that a node is gone; then two nodes are truly two

Step = Literal["new", "greeted", "invited", "welcome"]
Say = Callable[[Mapping[str, Any]], None]


@dataclass
class Visitor:
    """One connected node."""

    node: int
    step: Step = "new"
    waits_for: str = ""  # id of the message that it has to answer
    not_before: float = 0.0  # when it is greeted again
    tries: int = 0  # in vain, since it was last welcome
    asked_at: float = 0.0
    reason: str = ""  # why it is not welcome, if anybody was told
    since: float = field(default_factory=time.monotonic)
    identity: str = ""
    client: int = -1


class Nodes:
    """Flower's nodes, by the number of the client that lives there."""

    def __init__(
        self,
        grid: Grid,
        book: ClientBook,
        terms: Terms,
        invite: Callable[[str, int], Invitation],
        say: Say = lambda event: None,
    ) -> None:
        self._grid, self._book, self._terms = grid, book, terms
        self._invite, self._say = invite, say
        self._carrier = Carrier(grid)
        self._visitors: dict[int, Visitor] = {}

    @property
    def here(self) -> dict[int, int]:
        """Clients that are welcome and connected, and the node of each."""
        return {
            visitor.client: visitor.node
            for visitor in self._visitors.values()
            if visitor.step == "welcome"
        }

    def look(self) -> None:
        """See who is connected now, and go on with everybody's joining."""
        connected = set(self._grid.get_node_ids())
        for node in self._visitors.keys() - connected:
            visitor = self._visitors.pop(node)
            if visitor.client >= 0:
                self._say({"event": "gone", "client": visitor.client, "node": str(node)})
        for node in sorted(connected - self._visitors.keys()):
            self._visitors[node] = Visitor(node)
        for message_id, parcel in self._carrier.collect():
            for visitor in self._visitors.values():
                if visitor.waits_for == message_id:
                    visitor.waits_for = ""
                    self._go_on(visitor, parcel)
        now = time.monotonic()
        for visitor in self._visitors.values():
            is_asked = visitor.step in ("greeted", "invited")
            if is_asked and not self._carrier.waits(visitor.waits_for):
                self._again(visitor, "it does not answer")
            if visitor.step == "new" and visitor.not_before <= now:
                self._send(visitor, "greeting", letter_of(Greeting(self._book.run)), "greeted")

    @property
    def is_settling(self) -> bool:
        """Is somebody about to join, whose first answer may come any moment?"""
        now = time.monotonic()
        return any(
            visitor.step in ("greeted", "invited")
            and visitor.tries == 0
            and now - visitor.asked_at < SETTLE_S
            for visitor in self._visitors.values()
        )

    def doubt(self, client: int) -> None:
        """What came from a client was not as agreed: perhaps another one lives there now. Ask again."""
        for visitor in self._visitors.values():
            if visitor.step == "welcome" and visitor.client == client:
                visitor.step = "new"

    def _go_on(self, visitor: Visitor, parcel: Parcel) -> None:
        """The next step with a node that has answered."""
        if parcel.kind in ("lost", "refused"):  # its daemon is not up, or has failed
            self._again(visitor, parcel.reason)
            return
        try:
            if visitor.step == "greeted":
                self._meet(visitor, letter_from(parcel.letter, Introduction))
            elif visitor.step == "invited":
                self._welcome(visitor, parcel.letter)
        except (BadMessage, Diverged) as error:
            self._refuse(visitor, str(error))

    def _meet(self, visitor: Visitor, who: Introduction) -> None:
        check_versions(who, "this client", "the server")
        number = self._book.number_for(who, visitor.node)
        if (other := self._elsewhere(visitor, who.identity)) is not None:
            if time.monotonic() - visitor.since < GHOST_S:
                visitor.tries = min(visitor.tries, 1)  # it may be a ghost that is gone any moment
                self._again(visitor, f"client {number} is still connected as node {other}")
                return
            raise BadMessage(
                f"the state folder of client {number} is in use at two nodes, {other} and {visitor.node}; was "
                "it copied? Every client needs a folder of its own (--state)."
            )
        visitor.identity, visitor.client = who.identity, number
        # At once, so that nobody else who is on the way gets the same number.
        self._book.enter(who.identity, number, visitor.node)
        letter = letter_of(self._invite(self._book.run, number))
        self._send(visitor, "invitation", letter, "invited")

    def _welcome(self, visitor: Visitor, letter: bytes) -> None:
        try:
            hello = from_bytes(letter, self._terms, Hello)
        except BadMessage as error:
            raise BadMessage(_refusal_in(letter) or str(error)) from error
        if hello.client != visitor.client:
            raise BadMessage(f"client {visitor.client} says that it is client {hello.client}.")
        visitor.step, visitor.tries, visitor.reason = "welcome", 0, ""
        self._say({"event": "joined", "client": visitor.client, "node": str(visitor.node)})

    def _refuse(self, visitor: Visitor, reason: str) -> None:
        """The run goes on without it. It is told, so that whoever started it can read why."""
        self._carrier.post(visitor.node, "refusal", letter_of(Refusal(reason)), "query", ANSWER_S)
        visitor.tries = 10  # perhaps another client lives there one day; there is no hurry
        self._again(visitor, reason, "refused")

    def _again(self, visitor: Visitor, reason: str, event: str = "retry") -> None:
        """Greet it later once more. One line per reason is enough."""
        delay = min(RETRY_S * 2**visitor.tries, MOST_RETRY_S)
        visitor.step, visitor.not_before = "new", time.monotonic() + delay
        visitor.tries += 1
        if reason != visitor.reason:
            visitor.reason = reason
            self._say({"event": event, "node": str(visitor.node), "reason": reason})

    def _send(self, visitor: Visitor, kind: str, letter: bytes, step: Step) -> None:
        message_id = self._carrier.post(visitor.node, kind, letter, "query", ANSWER_S)
        if message_id is None:
            self._again(visitor, "Flower did not take a message for it")
        else:
            visitor.step, visitor.waits_for = step, message_id
            visitor.asked_at = time.monotonic()

    def _elsewhere(self, visitor: Visitor, identity: str) -> int | None:
        """The other connected node that a client was last seen at."""
        known = self._book.entries.get(identity)
        if known is None or known.node == visitor.node or known.node not in self._visitors:
            return None
        return known.node


def _refusal_in(letter: bytes) -> str | None:
    """What a refusal says, if that is what the letter is."""
    try:
        return letter_from(letter, Refusal).reason
    except BadMessage:
        return None
