"""The post of a federation on Flower: orders and questions to nodes, in time or late."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from flwr.serverapp import Grid

from thalweg.network.flower.messenger import GridMessenger
from thalweg.network.flower.nodes import EventHandler, Nodes
from thalweg.network.remote_federation import Packet

MIN_POLL_S, MAX_POLL_S = 0.05, 1.0  # between two looks for replies, at first and after a while


class GridTransport:
    """Sends each client its letter, and waits until all have answered or the time is up.

    What comes later than that is handed over with the next letters, if it is one of the last `max_staleness` of them;
    a letter to somebody who has gone, or whose daemon is away, is lost.
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
                self._nodes.poll()  # who comes now can be in the next round
        self._give_up(sent)

    def _give_up(self, sent: set[str]) -> None:
        """The time is up. What is still to come may come later, if anybody has a use for it."""
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
        """Ids of the messages, one at a time: all models together may be larger than the memory."""
        sent, present = set(), self._nodes.present
        lifetime = self._deadline_s * (1 + self._max_staleness)
        for client, letter in packets:
            message_id = None
            if client in present:
                message_id = self._messenger.send(
                    present[client], "request", letter, "train", lifetime
                )
            if message_id is None:
                self._report_missing(client, "it is not connected any more")
            else:
                sent.add(message_id)
                self._clients[message_id] = client
        return sent

    def _report_missing(self, client: int, reason: str) -> None:
        """Perhaps another client lives at its node by now, or none: it is asked who it is before the next round."""
        self._nodes.recheck(client)
        self._on_event({"event": "lost", "client": client, "reason": reason})
