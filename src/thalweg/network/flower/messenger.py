"""Letters to Flower's nodes, and what comes back, by the id of the message that it answers."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

from thalweg.network.edge.socket import Frame
from thalweg.network.flower.envelope import pack, unpack


@dataclass
class GridMessenger:
    """Messages that nobody has answered yet. A reply belongs to its message, whoever claims to have sent it."""

    grid: Grid
    group: str = ""
    _until: dict[str, float] = field(default_factory=dict)  # when Flower drops each

    def send(
        self, node: int, kind: str, letter: bytes, message_type: str, ttl: float
    ) -> str | None:
        """Send one letter; the id of its message, or none if Flower does not take it."""
        content = pack(Frame(kind, letter))
        message = Message(content, node, message_type, ttl=ttl, group_id=self.group)
        for message_id in self.grid.push_messages([message]):
            if message_id:
                self._until[message_id] = time.monotonic() + ttl
                return str(message_id)
        return None

    def collect(self) -> list[tuple[str, Frame]]:
        """What has come back by now. Messages that are too old to be answered are forgotten."""
        if not self._until:
            return []
        came = []
        for reply in self.grid.pull_messages(list(self._until)):
            message_id = reply.metadata.reply_to_message_id
            if self._until.pop(message_id, None) is not None:
                came.append((message_id, unpack(reply)))
        now = time.monotonic()
        self._until = {each: until for each, until in self._until.items() if until > now}
        return came

    def is_pending(self, message_id: str) -> bool:
        """Is a message still to be answered?"""
        return message_id in self._until

    def forget(self, message_id: str) -> None:
        self._until.pop(message_id, None)
