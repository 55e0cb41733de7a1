"""Letters over a unix socket, between what the network starts for every message and the daemon that lives on.

Only the standard library: the process at the network's end should be up in no time. One connection carries one
letter and what comes back. A frame is two lengths, a small JSON header and the letter, whose digest is checked.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

LENGTHS = struct.Struct(">IQ")  # of the header and of the letter, in bytes
MAX_HEADER = 1 << 16
MAX_PAYLOAD = 1 << 33  # more than any letter of a net that fits into a device
MAX_PATH = 100  # bytes; the system's limit is 104 or 108
FRAME_TIMEOUT_S = 30.0  # for the other side to finish a frame that it has begun
CHUNK = 1 << 20


class Unreachable(Exception):
    """Nobody answers at the socket, or not as agreed."""


@dataclass(frozen=True)
class Frame:
    """A letter with what is written on the envelope."""

    kind: str
    payload: bytes = b""
    reason: str = ""  # why there is no letter, if there is none


def compute_digest(payload: bytes) -> str:
    """By which a letter is recognised when it comes a second time."""
    return hashlib.sha256(payload).hexdigest()


def send_request(
    path: str | os.PathLike[str], kind: str, payload: bytes, timeout_s: float
) -> Frame:
    """Send the daemon a letter and wait for what it says; `Unreachable` if it says nothing in time."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(min(timeout_s, FRAME_TIMEOUT_S))
        try:
            line.connect(_check_path(path))
            send(line, Frame(kind, payload))
            line.settimeout(timeout_s)
            return receive(line)
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            raise Unreachable(f"nobody answers at {path}: {reason}.") from error


def send(line: socket.socket, frame: Frame) -> None:
    """Write one frame."""
    envelope = {"kind": frame.kind, "reason": frame.reason, "digest": compute_digest(frame.payload)}
    header = json.dumps(envelope).encode()
    if len(header) > MAX_HEADER:
        envelope["reason"] = frame.reason[:1000]
        header = json.dumps(envelope).encode()
    line.sendall(LENGTHS.pack(len(header), len(frame.payload)) + header)
    if frame.payload:  # to send nothing fails if the other side has answered, and left, by then
        line.sendall(frame.payload)


def receive(line: socket.socket) -> Frame:
    """Read one frame. The first byte may take as long as the line's timeout, the rest may not."""
    first = _read(line, 1)
    line.settimeout(FRAME_TIMEOUT_S)
    length, size = LENGTHS.unpack(first + _read(line, LENGTHS.size - 1))
    if length > MAX_HEADER or size > MAX_PAYLOAD:
        raise Unreachable(f"a frame of {length} and {size} bytes is too long.")
    try:
        header = json.loads(_read(line, length))
        kind, reason, digest = (str(header[name]) for name in ("kind", "reason", "digest"))
    except (ValueError, KeyError, TypeError) as error:
        raise Unreachable(f"the header of a frame is not one of ours: {error}.") from error
    payload = _read(line, size)
    if compute_digest(payload) != digest:
        raise Unreachable("a letter was damaged on its way.")
    return Frame(kind, payload, reason)


def _read(line: socket.socket, size: int) -> bytes:
    parts, left = [], size
    while left:
        part = line.recv(min(left, CHUNK))
        if not part:
            raise Unreachable(f"the line went dead with {left} of {size} bytes to come.")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _check_path(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    if len(os.fsencode(text)) > MAX_PATH:
        raise Unreachable(
            f"the path of the socket has {len(os.fsencode(text))} bytes, at most {MAX_PATH} are "
            f"possible: {text}. Use a folder with a shorter name."
        )
    return text


@contextlib.contextmanager
def open_listener(path: Path) -> Iterator[socket.socket]:
    """A socket in a folder that nobody else may enter. One that a dead daemon left behind is replaced."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(_check_path(path))
        path.chmod(0o600)
        listener.listen(64)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def serve_one(listener: socket.socket, answer: Callable[[Frame], Frame]) -> bool:
    """Answer one letter, if one comes before the door's timeout. Who hangs up early misses the answer."""
    try:
        line, _ = listener.accept()
    except TimeoutError:
        return False
    with line:
        line.settimeout(FRAME_TIMEOUT_S)
        with contextlib.suppress(OSError, Unreachable):
            frame = receive(line)
            response = answer(frame)
            line.settimeout(FRAME_TIMEOUT_S)
            send(line, response)
    return True
