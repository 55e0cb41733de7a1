"""The `Transport` of a federation on Flower: requests to nodes, responses in time or late."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator

from flwr.serverapp import Grid

from thalweg.network.flower.messenger import GridMessenger, describe_failure
from thalweg.network.flower.nodes import EventHandler, Nodes
from thalweg.network.remote_federation import Packet

MIN_POLL_S, MAX_POLL_S = 0.05, 1.0  # between two polls for responses


class GridTransport:
    """Sends requests to clients and waits until enough have responded or the deadline has passed.

    A round ends when all have responded, at the deadline, or a grace time after the `share` of
    `count_needed` has responded: `grace_s`, or as long again as these responses took if that is
    longer. Clients without a response are asked for their identity before they take part again.

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
        share: float = 1.0,
        grace_s: float = 30.0,
    ) -> None:
        self._nodes, self._messenger = nodes, GridMessenger(grid, nodes.max_bytes)
        self._deadline_s, self._max_staleness = deadline_s, max_staleness
        self._on_event, self._sleep = on_event, sleep
        self._share, self._grace_s = share, grace_s
        self._clients: dict[str, int] = {}  # by message

    def __call__(self, packets: Iterable[Packet]) -> Iterator[Packet]:
        sent = self._send_all(packets)
        began, pause, answered, has_share = time.monotonic(), MIN_POLL_S, 0, False
        until = began + self._deadline_s
        while True:
            for message_id, frame in self._messenger.collect():
                is_current = message_id in sent
                sent.discard(message_id)
                client = self._clients.pop(message_id)
                if frame.kind == "request":
                    answered += is_current
                    self._nodes.record_response(client)
                    yield client, frame.payload
                else:
                    self._report_missing(client, describe_failure(frame))
            now = time.monotonic()
            if not has_share and answered >= count_needed(answered + len(sent), self._share):
                has_share = True
                until = min(until, now + max(self._grace_s, now - began))
            left = until - now
            if not sent or left <= 0:
                break
            self._sleep(min(pause, left))
            pause = min(pause * 1.3, MAX_POLL_S)
            if pause == MAX_POLL_S:
                self._nodes.poll()  # clients that join now can take part in the next round
        self._give_up(sent)

    def _give_up(self, sent: set[str]) -> None:
        """Report clients without a response; forget their messages unless they may be late."""
        for client, message_id in sorted((self._clients[each], each) for each in sent):
            self._nodes.recheck_late(client)
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


def count_needed(num_requests: int, share: float) -> int:
    """The responses after which the grace time of a round starts.

    With a share below 1, one client of several can always be missing.

    >>> [count_needed(n, 0.9) for n in (1, 2, 5, 10, 20)], count_needed(5, 1.0)
    ([1, 1, 4, 9, 18], 5)
    """
    if share >= 1 or num_requests < 2:
        return num_requests
    return min(math.ceil(share * num_requests - 1e-9), num_requests - 1)
