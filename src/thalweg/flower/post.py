"""The post of a federation on Flower: orders and questions to nodes, in time or late."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from flwr.serverapp import Grid

from thalweg.flower.carrier import Carrier
from thalweg.flower.nodes import Nodes, Say
from thalweg.recipes.correspondence import Letter

QUICK_S, SLOW_S = 0.05, 1.0  # between two looks for replies, at first and after a while


class GridPost:
    """Sends each client its letter, and waits until all have answered or the time is up.

    What comes later than that is handed over with the next letters, if it is one of the last `patience` of them;
    a letter to somebody who has gone, or whose daemon is away, is lost.
    """

    def __init__(
        self,
        grid: Grid,
        nodes: Nodes,
        deadline_s: float,
        patience: int = 0,
        say: Say = lambda event: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._nodes, self._carrier = nodes, Carrier(grid)
        self._deadline_s, self._patience = deadline_s, patience
        self._say, self._sleep = say, sleep
        self._clients: dict[str, int] = {}  # by message

    def __call__(self, letters: Iterable[Letter]) -> Iterator[Letter]:
        sent = self._sent(letters)
        until, pause = time.monotonic() + self._deadline_s, QUICK_S
        while True:
            for message_id, parcel in self._carrier.collect():
                sent.discard(message_id)
                client = self._clients.pop(message_id)
                if parcel.kind == "errand":
                    yield client, parcel.letter
                else:
                    self._miss(client, parcel.reason)
            left = until - time.monotonic()
            if not sent or left <= 0:
                break
            self._sleep(min(pause, left))
            pause = min(pause * 1.3, SLOW_S)
            if pause == SLOW_S:
                self._nodes.look()  # who comes now can be in the next round
        self._give_up(sent)

    def _give_up(self, sent: set[str]) -> None:
        """The time is up. What is still to come may come later, if anybody has a use for it."""
        for client, message_id in sorted((self._clients[each], each) for each in sent):
            self._say({"event": "late", "client": client})
            if not self._patience:
                self._carrier.forget(message_id)
        self._clients = {
            message_id: client
            for message_id, client in self._clients.items()
            if self._carrier.waits(message_id)
        }

    def _sent(self, letters: Iterable[Letter]) -> set[str]:
        """Ids of the messages, one at a time: all models together may be larger than the memory."""
        sent, here = set(), self._nodes.here
        lifetime = self._deadline_s * (1 + self._patience)
        for client, letter in letters:
            message_id = None
            if client in here:
                message_id = self._carrier.post(here[client], "errand", letter, "train", lifetime)
            if message_id is None:
                self._miss(client, "it is not connected any more")
            else:
                sent.add(message_id)
                self._clients[message_id] = client
        return sent

    def _miss(self, client: int, reason: str) -> None:
        """Perhaps another client lives at its node by now, or none: it is asked who it is before the next round."""
        self._nodes.doubt(client)
        self._say({"event": "lost", "client": client, "reason": reason})
