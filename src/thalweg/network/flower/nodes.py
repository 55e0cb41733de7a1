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
from thalweg.federation import Hello
from thalweg.network.edge.socket import Frame
from thalweg.network.flower.messenger import GridMessenger
from thalweg.network.flower.registry import ClientRegistry
from thalweg.network.handshake import (
    IdentityRequest,
    IdentityResponse,
    Invitation,
    JoinRejection,
    check_versions,
    handshake_from_bytes,
    handshake_to_bytes,
)
from thalweg.network.wire import MessageSchema, from_bytes

RESPONSE_TIMEOUT_S = (
    120.0  # that a node may take for a letter of joining; the first one loads its data
)
RETRY_S, MAX_RETRY_S = (
    1.0,
    60.0,
)  # until a node that did not answer is greeted again, at first and at most
JOIN_WAIT_S = 10.0  # that a round waits for somebody who is just joining
STALE_NODE_S = 90.0  # after which Flower knows that a node is gone; then two nodes are truly two

Step = Literal["new", "identifying", "invited", "joined"]
EventHandler = Callable[[Mapping[str, Any]], None]


@dataclass
class ConnectedNode:
    """One connected node."""

    node: int
    step: Step = "new"
    pending_message: str = ""  # id of the message that it has to answer
    retry_at: float = 0.0  # when it is greeted again
    tries: int = 0  # in vain, since it was last welcome
    asked_at: float = 0.0
    reason: str = ""  # why it is not welcome, if anybody was told
    connected_at: float = field(default_factory=time.monotonic)
    identity: str = ""
    client: int = -1


class Nodes:
    """Flower's nodes, by the number of the client that lives there."""

    def __init__(
        self,
        grid: Grid,
        registry: ClientRegistry,
        schema: MessageSchema,
        make_invitation: Callable[[str, int], Invitation],
        on_event: EventHandler = lambda event: None,
    ) -> None:
        self._grid, self._registry, self._schema = grid, registry, schema
        self._make_invitation, self._on_event = make_invitation, on_event
        self._messenger = GridMessenger(grid)
        self._nodes: dict[int, ConnectedNode] = {}

    @property
    def present(self) -> dict[int, int]:
        """Clients that are welcome and connected, and the node of each."""
        return {
            visitor.client: visitor.node
            for visitor in self._nodes.values()
            if visitor.step == "joined"
        }

    def poll(self) -> None:
        """See who is connected now, and go on with everybody's joining."""
        connected = set(self._grid.get_node_ids())
        for node in self._nodes.keys() - connected:
            visitor = self._nodes.pop(node)
            if visitor.client >= 0:
                self._on_event({"event": "gone", "client": visitor.client, "node": str(node)})
        for node in sorted(connected - self._nodes.keys()):
            self._nodes[node] = ConnectedNode(node)
        for message_id, frame in self._messenger.collect():
            for visitor in self._nodes.values():
                if visitor.pending_message == message_id:
                    visitor.pending_message = ""
                    self._advance(visitor, frame)
        now = time.monotonic()
        for visitor in self._nodes.values():
            is_asked = visitor.step in ("identifying", "invited")
            if is_asked and not self._messenger.is_pending(visitor.pending_message):
                self._retry_later(visitor, "it does not answer")
            if visitor.step == "new" and visitor.retry_at <= now:
                self._send(
                    visitor,
                    "identity",
                    handshake_to_bytes(IdentityRequest(self._registry.run)),
                    "identifying",
                )

    @property
    def is_joining(self) -> bool:
        """Is somebody about to join, whose first answer may come any moment?"""
        now = time.monotonic()
        return any(
            visitor.step in ("identifying", "invited")
            and visitor.tries == 0
            and now - visitor.asked_at < JOIN_WAIT_S
            for visitor in self._nodes.values()
        )

    def recheck(self, client: int) -> None:
        """What came from a client was not as agreed: perhaps another one lives there now. Ask again."""
        for visitor in self._nodes.values():
            if visitor.step == "joined" and visitor.client == client:
                visitor.step = "new"

    def _advance(self, visitor: ConnectedNode, frame: Frame) -> None:
        """The next step with a node that has answered."""
        if frame.kind in ("lost", "rejected"):  # its daemon is not up, or has failed
            self._retry_later(visitor, frame.reason)
            return
        try:
            if visitor.step == "identifying":
                self._handle_identity(
                    visitor, handshake_from_bytes(frame.payload, IdentityResponse)
                )
            elif visitor.step == "invited":
                self._handle_hello(visitor, frame.payload)
        except (BadMessage, Diverged) as error:
            self._reject(visitor, str(error))

    def _handle_identity(self, visitor: ConnectedNode, who: IdentityResponse) -> None:
        check_versions(who, "this client", "the server")
        number = self._registry.find_number(who, visitor.node)
        if (other := self._other_node_of(visitor, who.identity)) is not None:
            if time.monotonic() - visitor.connected_at < STALE_NODE_S:
                visitor.tries = min(visitor.tries, 1)  # it may be a ghost that is gone any moment
                self._retry_later(visitor, f"client {number} is still connected as node {other}")
                return
            raise BadMessage(
                f"the state folder of client {number} is in use at two nodes, {other} and {visitor.node}; was "
                "it copied? Every client needs a folder of its own (--state)."
            )
        visitor.identity, visitor.client = who.identity, number
        # At once, so that nobody else who is on the way gets the same number.
        self._registry.record(who.identity, number, visitor.node)
        letter = handshake_to_bytes(self._make_invitation(self._registry.run, number))
        self._send(visitor, "invitation", letter, "invited")

    def _handle_hello(self, visitor: ConnectedNode, letter: bytes) -> None:
        try:
            hello = from_bytes(letter, self._schema, Hello)
        except BadMessage as error:
            raise BadMessage(_read_rejection(letter) or str(error)) from error
        if hello.client != visitor.client:
            raise BadMessage(f"client {visitor.client} says that it is client {hello.client}.")
        visitor.step, visitor.tries, visitor.reason = "joined", 0, ""
        self._on_event({"event": "joined", "client": visitor.client, "node": str(visitor.node)})

    def _reject(self, visitor: ConnectedNode, reason: str) -> None:
        """The run goes on without it. It is told, so that whoever started it can read why."""
        self._messenger.send(
            visitor.node,
            "rejection",
            handshake_to_bytes(JoinRejection(reason)),
            "query",
            RESPONSE_TIMEOUT_S,
        )
        visitor.tries = 10  # perhaps another client lives there one day; there is no hurry
        self._retry_later(visitor, reason, "rejected")

    def _retry_later(self, visitor: ConnectedNode, reason: str, event: str = "retry") -> None:
        """Greet it later once more. One line per reason is enough."""
        delay = min(RETRY_S * 2**visitor.tries, MAX_RETRY_S)
        visitor.step, visitor.retry_at = "new", time.monotonic() + delay
        visitor.tries += 1
        if reason != visitor.reason:
            visitor.reason = reason
            self._on_event({"event": event, "node": str(visitor.node), "reason": reason})

    def _send(self, visitor: ConnectedNode, kind: str, letter: bytes, step: Step) -> None:
        message_id = self._messenger.send(visitor.node, kind, letter, "query", RESPONSE_TIMEOUT_S)
        if message_id is None:
            self._retry_later(visitor, "Flower did not take a message for it")
        else:
            visitor.step, visitor.pending_message = step, message_id
            visitor.asked_at = time.monotonic()

    def _other_node_of(self, visitor: ConnectedNode, identity: str) -> int | None:
        """The other connected node that a client was last seen at."""
        known = self._registry.entries.get(identity)
        if known is None or known.node == visitor.node or known.node not in self._nodes:
            return None
        return known.node


def _read_rejection(letter: bytes) -> str | None:
    """What a refusal says, if that is what the letter is."""
    try:
        return handshake_from_bytes(letter, JoinRejection).reason
    except BadMessage:
        return None
