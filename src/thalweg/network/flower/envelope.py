"""A letter inside a message of Flower: bytes in one record, what is written on the envelope in another.

The bytes travel as one array, because Flower cuts arrays into pieces: large models are no problem. What comes out
is looked at here alone; nobody reads other records of a message.
"""

from __future__ import annotations

import os

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from thalweg.network.edge.socket import Frame

LETTER, ENVELOPE, BYTES = "letter", "envelope", "bytes"
NONCE_BYTES = 16  # random bytes behind a letter. Flower stores what has the same bytes once, and what one run has
# deleted another would wait for: a server that was killed greets with the same words again
STYPE = "thalweg.letter"  # not NumPy's: nobody should parse it


def pack(frame: Frame) -> RecordDict:
    """A parcel as the content of a message."""
    size = len(frame.payload)
    data = frame.payload + os.urandom(NONCE_BYTES)
    array = Array(dtype="uint8", shape=(len(data),), stype=STYPE, data=data)
    envelope = ConfigRecord({"kind": frame.kind, "reason": frame.reason, "size": size})
    return RecordDict({LETTER: ArrayRecord({BYTES: array}), ENVELOPE: envelope})


def unpack(message: Message) -> Frame:
    """The parcel in a message; an error's reason, or what is not as it should be, is a parcel that is `lost`."""
    if message.has_error():
        return Frame("lost", reason=_last_line(message.error.reason or "no reason was given"))
    try:
        envelope = message.content.config_records[ENVELOPE]
        data = message.content.array_records[LETTER][BYTES].data
        kind, reason, size = envelope["kind"], envelope["reason"], envelope["size"]
    except KeyError as error:
        return Frame("lost", reason=f"it is no letter of ours: {error} is missing.")
    if not isinstance(kind, str) or not isinstance(reason, str) or not isinstance(size, int):
        return Frame("lost", reason="it is no letter of ours: its envelope cannot be read.")
    return Frame(kind, data[: max(size, 0)], reason)


def _last_line(reason: str) -> str:
    """The last line of a traceback says what it was."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    return lines[-1][:500] if lines else "no reason was given"
