"""The server's side of joining: which nodes are connected, and which client each one is.

Nothing here blocks: `poll` sends identity requests to new nodes, reads responses, and continues the
handshake with each node. A node that does not respond, or whose daemon is not running yet, is asked
again later. So is a rejected node, but rarely: another client may run there by then.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from flwr.serverapp import Grid

from thalweg.core.errors import BadMessage, Diverged
from thalweg.federation import Hello
from thalweg.network.edge.socket import Frame
from thalweg.network.flower.messenger import GridMessenger, describe_failure
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
from thalweg.network.rejections import Rejected, RejectionCode, find_code, read_code
from thalweg.network.wire import MessageSchema, from_bytes

RESPONSE_TIMEOUT_S = 120.0  # for a handshake message; a client loads its data meanwhile
RETRY_S, MAX_RETRY_S = 1.0, 60.0  # until a node is asked again, at first and at most
LATE_RETRY_S, MAX_LATE_RETRY_S = 60.0, 3600.0  # after two late rounds in a row, and at most
JOIN_WAIT_S = 10.0  # that a round waits for clients that are joining
STALE_NODE_S = 90.0  # after which Flower has noticed that a node is gone

Step = Literal["new", "identifying", "invited", "joined"]
EventHandler = Callable[[Mapping[str, Any]], None]


@dataclass
class ConnectedNode:
    """One connected node."""

    node: int
    step: Step = "new"
    pending_message: str = ""  # id of the message that it has not responded to
    retry_at: float = 0.0  # when it is asked again
    tries: int = 0  # failed attempts since it last joined
    asked_at: float = 0.0
    reason: str = ""  # last reported reason why it has not joined
    code: RejectionCode | None = None  # of its last rejection, until it joins
    connected_at: float = field(default_factory=time.monotonic)
    identity: str = ""
    client: int = -1


class Nodes:
    """The connected nodes of Flower, and the client number of each."""

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
        self.max_bytes = schema.max_bytes  # of the payload of a message
        self._messenger = GridMessenger(grid, self.max_bytes)
        self._nodes: dict[int, ConnectedNode] = {}
        self._late: dict[int, int] = {}  # rounds in a row without a response, by client
        self._offered = set[int]()  # new numbers that their clients have not accepted yet
        # Nodes that were rejected and have not joined since, also those that have disconnected.
        self.rejected: Counter[RejectionCode] = Counter()

    @property
    def present(self) -> dict[int, int]:
        """The nodes of the clients that have joined and are connected, by client number."""
        return {
            entry.client: entry.node for entry in self._nodes.values() if entry.step == "joined"
        }

    @property
    def num_failing(self) -> int:
        """The number of connected nodes that were asked, have not joined and were not rejected."""
        return sum(
            entry.step != "joined" and entry.tries > 0 and entry.code is None
            for entry in self._nodes.values()
        )

    def poll(self) -> None:
        """Update the connected nodes and continue the handshake with each."""
        connected = set(self._grid.get_node_ids())
        for node in self._nodes.keys() - connected:
            entry = self._nodes.pop(node)
            if entry.client >= 0:
                self._on_event({"event": "gone", "client": entry.client, "node": str(node)})
        for node in sorted(connected - self._nodes.keys()):
            self._nodes[node] = ConnectedNode(node)
        for message_id, frame in self._messenger.collect():
            for entry in self._nodes.values():
                if entry.pending_message == message_id:
                    entry.pending_message = ""
                    self._advance(entry, frame)
        now = time.monotonic()
        for entry in self._nodes.values():
            is_asked = entry.step in ("identifying", "invited")
            if is_asked and not self._messenger.is_pending(entry.pending_message):
                self._retry_later(entry, "it does not respond")
            if entry.step == "new" and entry.retry_at <= now:
                self._send(
                    entry,
                    "identity",
                    handshake_to_bytes(IdentityRequest(self._registry.run)),
                    "identifying",
                )

    @property
    def is_joining(self) -> bool:
        """Whether a node that connected recently has not completed its first handshake."""
        now = time.monotonic()
        return any(
            entry.step in ("identifying", "invited")
            and entry.tries == 0
            and now - entry.asked_at < JOIN_WAIT_S
            for entry in self._nodes.values()
        )

    def recheck(self, client: int) -> None:
        """Ask the node of a client for its identity again: another client may run there now."""
        for entry in self._nodes.values():
            if entry.step == "joined" and entry.client == client:
                entry.step = "new"

    def recheck_late(self, client: int) -> None:
        """Ask the node of a client that has not responded in time for its identity again.

        The first time at once; after several such rounds in a row later and later. A client that
        never responds to requests therefore delays few rounds.
        """
        rounds = self._late[client] = self._late.get(client, 0) + 1
        delay = 0.0 if rounds == 1 else min(LATE_RETRY_S * 2.0 ** (rounds - 2), MAX_LATE_RETRY_S)
        for entry in self._nodes.values():
            if entry.step == "joined" and entry.client == client:
                entry.step, entry.retry_at = "new", time.monotonic() + delay

    def record_response(self, client: int) -> None:
        """End the delays of `recheck_late` for a client."""
        self._late.pop(client, None)

    def recall_late(self) -> None:
        """Ask late clients at once, because a round lacks clients."""
        for entry in self._nodes.values():
            if entry.step == "new" and entry.client in self._late and entry.tries == 0:
                entry.retry_at = 0.0

    def _advance(self, entry: ConnectedNode, frame: Frame) -> None:
        """Continue the handshake with a node that has responded."""
        if frame.kind in ("lost", "rejected"):  # its daemon is not running, or has failed
            if frame.kind == "rejected":
                self._set_code(entry, read_code(frame.reason))
                if entry.step == "invited":
                    self._free_number(entry)
            self._retry_later(entry, describe_failure(frame))
            return
        try:
            if entry.step == "identifying":
                self._handle_identity(entry, handshake_from_bytes(frame.payload, IdentityResponse))
            elif entry.step == "invited":
                self._handle_hello(entry, frame.payload)
        except (BadMessage, Diverged) as error:
            self._reject(entry, error)

    def _handle_identity(self, entry: ConnectedNode, response: IdentityResponse) -> None:
        check_versions(response, "this client", "the server")
        number = self._registry.find_number(response, entry.node)
        if (other := self._other_node_of(entry, response.identity)) is not None:
            if time.monotonic() - entry.connected_at < STALE_NODE_S:
                entry.tries = min(entry.tries, 1)  # the other node may be about to disappear
                self._retry_later(entry, f"client {number} is still connected as node {other}")
                return
            raise Rejected(
                RejectionCode.KEY,
                f"the state folder of client {number} is in use at two nodes, {other} and "
                f"{entry.node}; was it copied? Every client needs a folder of its own (--state).",
            )
        entry.identity, entry.client = response.identity, number
        if number not in self._registry.taken:
            self._offered.add(number)
        elif response.run is not None:
            self._offered.discard(number)  # accepted, but the response was lost
        # Recorded before the client has accepted, so that no other client gets the same number.
        self._registry.record(response.identity, number, entry.node)
        payload = handshake_to_bytes(self._make_invitation(self._registry.run, number))
        self._send(entry, "invitation", payload, "invited")

    def _handle_hello(self, entry: ConnectedNode, payload: bytes) -> None:
        try:
            hello = from_bytes(payload, self._schema, Hello)
        except BadMessage as error:
            code = _read_rejection(payload)
            if code is None:
                raise
            self._free_number(entry)
            raise Rejected(code) from error
        if hello.client != entry.client:
            raise BadMessage(f"expected Hello of client {entry.client}, got {hello.client}.")
        self._offered.discard(entry.client)
        entry.step, entry.tries, entry.reason = "joined", 0, ""
        self._set_code(entry, None)
        self._on_event({"event": "joined", "client": entry.client, "node": str(entry.node)})

    def _free_number(self, entry: ConnectedNode) -> None:
        """Free the number of a client that rejected its invitation, if it has never joined."""
        if entry.client in self._offered:
            self._offered.discard(entry.client)
            self._registry.remove(entry.client)
            entry.client = -1

    def _reject(self, entry: ConnectedNode, error: Exception) -> None:
        """Send the node a rejection; the run continues without it."""
        code = find_code(error)
        payload = handshake_to_bytes(JoinRejection(code))
        self._messenger.send(entry.node, "rejection", payload, "query", RESPONSE_TIMEOUT_S)
        entry.tries = 10  # ask again at the longest interval
        self._set_code(entry, code)
        self._retry_later(entry, str(error), "rejected")

    def _retry_later(self, entry: ConnectedNode, reason: str, event: str = "retry") -> None:
        """Ask the node again later; report each new reason once."""
        delay = min(RETRY_S * 2**entry.tries, MAX_RETRY_S)
        entry.step, entry.retry_at = "new", time.monotonic() + delay
        entry.tries += 1
        if reason != entry.reason:
            entry.reason = reason
            self._on_event({"event": event, "node": str(entry.node), "reason": reason})

    def _set_code(self, entry: ConnectedNode, code: RejectionCode | None) -> None:
        """Count a node in `rejected` once, under its last code."""
        if entry.code is not None:
            self.rejected[entry.code] -= 1
        entry.code = code
        if code is not None:
            self.rejected[code] += 1

    def _send(self, entry: ConnectedNode, kind: str, payload: bytes, step: Step) -> None:
        message_id = self._messenger.send(entry.node, kind, payload, "query", RESPONSE_TIMEOUT_S)
        if message_id is None:
            self._retry_later(entry, "Flower did not accept a message for it")
        else:
            entry.step, entry.pending_message = step, message_id
            entry.asked_at = time.monotonic()

    def _other_node_of(self, entry: ConnectedNode, identity: str) -> int | None:
        """Another connected node with the same client, if there is one."""
        known = self._registry.entries.get(identity)
        if known is None or known.node == entry.node or known.node not in self._nodes:
            return None
        return known.node


def _read_rejection(payload: bytes) -> RejectionCode | None:
    """The code of a `JoinRejection`; None if the payload is another message."""
    try:
        return handshake_from_bytes(payload, JoinRejection).code
    except BadMessage:
        return None
