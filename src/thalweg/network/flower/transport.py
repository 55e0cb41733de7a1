"""The `Transport` of a federation on Flower: requests to nodes, responses in time or late."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from flwr.serverapp import Grid

from thalweg.network.flower.messenger import GridMessenger
from thalweg.network.flower.nodes import EventHandler, Nodes
from thalweg.network.remote_federation import Packet

MIN_POLL_S, MAX_POLL_S = 0.05, 1.0  # between two polls for responses


class GridTransport:
    """Sends requests to clients and waits until all have responded or the deadline has passed.

    A response that comes later is returned with those of the next requests, for `max_staleness`
    deadlines. A request to a client that is not connected, or whose daemon is not running, is lost.
    """

    def __init__(
        self,
        grid: Grid,
        nodes: Nodes,
        deadline_s: float,
        max_staleness: int = 0,
        on_event: EventHandler = lambda event: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._nodes, self._messenger = nodes, GridMessenger(grid)
        self._deadline_s, self._max_staleness = deadline_s, max_staleness
        self._on_event, self._sleep = on_event, sleep
        self._clients: dict[str, int] = {}  # by message

    def __call__(self, packets: Iterable[Packet]) -> Iterator[Packet]:
        sent = self._send_all(packets)
        until, pause = time.monotonic() + self._deadline_s, MIN_POLL_S
        while True:
            for message_id, frame in self._messenger.collect():
                sent.discard(message_id)
                client = self._clients.pop(message_id)
                if frame.kind == "request":
                    yield client, frame.payload
                else:
                    self._report_missing(client, frame.reason)
            left = until - time.monotonic()
            if not sent or left <= 0:
                break
            self._sleep(min(pause, left))
            pause = min(pause * 1.3, MAX_POLL_S)
            if pause == MAX_POLL_S:
                self._nodes.poll()  # clients that join now can take part in the next round
        self._give_up(sent)

    def _give_up(self, sent: set[str]) -> None:
        """Report late clients after the deadline; forget their messages unless they may be late."""
        for client, message_id in sorted((self._clients[each], each) for each in sent):
            self._on_event({"event": "late", "client": client})
            if not self._max_staleness:
                self._messenger.forget(message_id)
        self._clients = {
            message_id: client
            for message_id, client in self._clients.items()
            if self._messenger.is_pending(message_id)
        }

    def _send_all(self, packets: Iterable[Packet]) -> set[str]:
        """Send requests one at a time (all models may not fit into memory); return message ids."""
        sent, present = set(), self._nodes.present
        lifetime = self._deadline_s * (1 + self._max_staleness)
        for client, payload in packets:
            message_id = None
            if client in present:
                message_id = self._messenger.send(
                    present[client], "request", payload, "train", lifetime
                )
            if message_id is None:
                self._report_missing(client, "it is not connected any more")
            else:
                sent.add(message_id)
                self._clients[message_id] = client
        return sent

    def _report_missing(self, client: int, reason: str) -> None:
        """Report a lost request, and check the identity of the node before the next round."""
        self._nodes.recheck(client)
        self._on_event({"event": "lost", "client": client, "reason": reason})
