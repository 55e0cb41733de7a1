"""Sends payloads to Flower's nodes as Flower messages, and receives the responses.

A payload travels as one array, because Flower splits large arrays into chunks. A second record has
the kind of the frame, its reason, and the size of the payload.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from thalweg.network.edge.socket import Frame
from thalweg.network.flower.inbox import ResponseInbox, open_inbox
from thalweg.network.rejections import describe_code

if TYPE_CHECKING:
    from flwr.serverapp import Grid  # not needed by clients, and slow to import

PAYLOAD, HEADER, BYTES = "payload", "header", "bytes"
# Random bytes after each payload. Flower stores equal contents once, so without them a restarted
# server could wait for a content that the previous run has deleted.
NONCE_BYTES = 16
STYPE = "thalweg.payload"  # not NumPy's, so that Flower does not parse it
NO_REASON = "no reason was given"


def pack(frame: Frame) -> RecordDict:
    """Convert a frame to the content of a Flower message."""
    size = len(frame.payload)
    data = frame.payload + os.urandom(NONCE_BYTES)
    array = Array(dtype="uint8", shape=(len(data),), stype=STYPE, data=data)
    header = ConfigRecord({"kind": frame.kind, "reason": frame.reason, "size": size})
    return RecordDict({PAYLOAD: ArrayRecord({BYTES: array}), HEADER: header})


def unpack(message: Message | str) -> Frame:
    """Convert a Flower message to a frame; its kind is `lost` for errors and unknown contents.

    A text is the reason why there is no message.
    """
    if isinstance(message, str):
        return Frame("lost", reason=message)
    if message.has_error():
        return Frame("lost", reason=_last_line(message.error.reason or NO_REASON))
    try:
        header = message.content.config_records[HEADER]
        data = message.content.array_records[PAYLOAD][BYTES].data
        kind, reason, size = header["kind"], header["reason"], header["size"]
    except KeyError as error:
        return Frame("lost", reason=f"this is not a message of thalweg: {error} is missing.")
    if not isinstance(kind, str) or not isinstance(reason, str) or not isinstance(size, int):
        return Frame("lost", reason="this is not a message of thalweg: its header is invalid.")
    return Frame(kind, data[: max(size, 0)], reason)


def describe_failure(frame: Frame) -> str:
    """Return why a frame has no payload: the text of a device's code, or an error of Flower."""
    return describe_code(frame.reason) if frame.kind == "rejected" else frame.reason


def _last_line(reason: str) -> str:
    """The last line of a traceback, which has the error message."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    return lines[-1][:500] if lines else NO_REASON


@dataclass
class GridMessenger:
    """Sends messages through a grid and matches each response to its message by the message id."""

    grid: Grid
    max_bytes: int  # of the payload of a response
    group: str = ""
    _until: dict[str, float] = field(default_factory=dict)  # expiry of pending messages, by id
    _inbox: ResponseInbox = field(init=False)

    def __post_init__(self) -> None:
        self._inbox = open_inbox(self.grid, self.max_bytes)

    def send(
        self, node: int, kind: str, payload: bytes, message_type: str, ttl: float
    ) -> str | None:
        """Send a payload; return the id of its message, or None if Flower does not accept it."""
        content = pack(Frame(kind, payload))
        message = Message(content, node, message_type, ttl=ttl, group_id=self.group)
        for message_id in self.grid.push_messages([message]):
            if message_id:
                self._until[message_id] = time.monotonic() + ttl
                return str(message_id)
        return None

    def collect(self) -> list[tuple[str, Frame]]:
        """Return new responses with the ids of their messages; forget expired messages.

        A response that has arrived in part is left for the next call.
        """
        responses = []
        for message_id, response in self._inbox.pull(list(self._until)):
            if self._until.pop(message_id, None) is not None:
                responses.append((message_id, unpack(response)))
        now = time.monotonic()
        self._until = {each: until for each, until in self._until.items() if until > now}
        return responses

    def is_pending(self, message_id: str) -> bool:
        """Whether a response to the message is still expected."""
        return message_id in self._until

    def forget(self, message_id: str) -> None:
        self._until.pop(message_id, None)
