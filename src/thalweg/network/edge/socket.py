"""Frames over a Unix socket between the process of a message and the daemon.

Only the standard library is used, because the process of a message must start quickly. One
connection carries one request and one response. A frame consists of two lengths, a small JSON
header and the payload with its digest.
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

LENGTHS = struct.Struct(">IQ")  # of the header and of the payload, in bytes
MAX_HEADER = 1 << 16
MAX_PAYLOAD = 1 << 33  # larger than any message of a net that fits into a device
MAX_PATH = 100  # bytes; the system's limit is 104 or 108
FRAME_TIMEOUT_S = 30.0  # for the other side to finish a frame
CHUNK = 1 << 20


class Unreachable(Exception):
    """The daemon does not answer at the socket, or not correctly."""


@dataclass(frozen=True)
class Frame:
    """A payload with its header."""

    kind: str
    payload: bytes = b""
    reason: str = ""  # reason if there is no payload


def compute_digest(payload: bytes) -> str:
    """Digest that identifies a repeated request."""
    return hashlib.sha256(payload).hexdigest()


def send_request(
    path: str | os.PathLike[str], kind: str, payload: bytes, timeout_s: float
) -> Frame:
    """Send a request to the daemon and wait for the response; `Unreachable` after a timeout."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(min(timeout_s, FRAME_TIMEOUT_S))
        try:
            line.connect(_check_path(path))
            send(line, Frame(kind, payload))
            line.settimeout(timeout_s)
            return receive(line)
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            raise Unreachable(f"the daemon does not answer at {path}: {reason}.") from error


def send(line: socket.socket, frame: Frame) -> None:
    """Write one frame."""
    envelope = {"kind": frame.kind, "reason": frame.reason, "digest": compute_digest(frame.payload)}
    header = json.dumps(envelope).encode()
    if len(header) > MAX_HEADER:
        envelope["reason"] = frame.reason[:1000]
        header = json.dumps(envelope).encode()
    line.sendall(LENGTHS.pack(len(header), len(frame.payload)) + header)
    if (
        frame.payload
    ):  # sending nothing would fail if the other side has already closed the connection
        line.sendall(frame.payload)


def receive(line: socket.socket) -> Frame:
    """Read one frame.

    The timeout of the socket applies to the first byte, FRAME_TIMEOUT_S to the rest.
    """
    first = _read(line, 1)
    line.settimeout(FRAME_TIMEOUT_S)
    length, size = LENGTHS.unpack(first + _read(line, LENGTHS.size - 1))
    if length > MAX_HEADER or size > MAX_PAYLOAD:
        raise Unreachable(f"a frame of {length} and {size} bytes is too long.")
    try:
        header = json.loads(_read(line, length))
        kind, reason, digest = (str(header[name]) for name in ("kind", "reason", "digest"))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unreachable(f"invalid frame header: {error}.") from error
    payload = _read(line, size)
    if compute_digest(payload) != digest:
        raise Unreachable("the payload is damaged: its digest does not match.")
    return Frame(kind, payload, reason)


def _read(line: socket.socket, size: int) -> bytes:
    parts, left = [], size
    while left:
        part = line.recv(min(left, CHUNK))
        if not part:
            raise Unreachable(f"the connection ended with {left} of {size} bytes missing.")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _check_path(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    if len(os.fsencode(text)) > MAX_PATH:
        raise Unreachable(
            f"the socket path has {len(os.fsencode(text))} bytes, but at most {MAX_PATH} are "
            f"possible: {text}. Use a folder with a shorter path."
        )
    return text


@contextlib.contextmanager
def open_listener(path: Path) -> Iterator[socket.socket]:
    """Listen on a socket in a folder with restricted access. A stale socket is replaced."""
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


def serve_one(listener: socket.socket, handle: Callable[[Frame], Frame]) -> bool:
    """Handle one frame if one arrives before the timeout. Early disconnects are ignored."""
    try:
        line, _ = listener.accept()
    except TimeoutError:
        return False
    with line:
        line.settimeout(FRAME_TIMEOUT_S)
        with contextlib.suppress(OSError, Unreachable):
            frame = receive(line)
            response = handle(frame)
            line.settimeout(FRAME_TIMEOUT_S)
            send(line, response)
    return True
