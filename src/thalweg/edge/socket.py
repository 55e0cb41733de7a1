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
LONGEST_HEADER = 1 << 16
LONGEST_LETTER = 1 << 33  # more than any letter of a net that fits into a device
LONGEST_PATH = 100  # bytes; the system's limit is 104 or 108
PATIENCE_S = 30.0  # for the other side to finish a frame that it has begun
CHUNK = 1 << 20


class Unreachable(Exception):
    """Nobody answers at the socket, or not as agreed."""


@dataclass(frozen=True)
class Parcel:
    """A letter with what is written on the envelope."""

    kind: str
    letter: bytes = b""
    reason: str = ""  # why there is no letter, if there is none


def digest_of(letter: bytes) -> str:
    """By which a letter is recognised when it comes a second time."""
    return hashlib.sha256(letter).hexdigest()


def ask(path: str | os.PathLike[str], kind: str, letter: bytes, timeout_s: float) -> Parcel:
    """Send the daemon a letter and wait for what it says; `Unreachable` if it says nothing in time."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(min(timeout_s, PATIENCE_S))
        try:
            line.connect(_checked(path))
            send(line, Parcel(kind, letter))
            line.settimeout(timeout_s)
            return receive(line)
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            raise Unreachable(f"nobody answers at {path}: {reason}.") from error


def send(line: socket.socket, parcel: Parcel) -> None:
    """Write one frame."""
    envelope = {"kind": parcel.kind, "reason": parcel.reason, "digest": digest_of(parcel.letter)}
    header = json.dumps(envelope).encode()
    if len(header) > LONGEST_HEADER:
        envelope["reason"] = parcel.reason[:1000]
        header = json.dumps(envelope).encode()
    line.sendall(LENGTHS.pack(len(header), len(parcel.letter)) + header)
    if parcel.letter:  # to send nothing fails if the other side has answered, and left, by then
        line.sendall(parcel.letter)


def receive(line: socket.socket) -> Parcel:
    """Read one frame. The first byte may take as long as the line's timeout, the rest may not."""
    first = _read(line, 1)
    line.settimeout(PATIENCE_S)
    length, size = LENGTHS.unpack(first + _read(line, LENGTHS.size - 1))
    if length > LONGEST_HEADER or size > LONGEST_LETTER:
        raise Unreachable(f"a frame of {length} and {size} bytes is too long.")
    try:
        header = json.loads(_read(line, length))
        kind, reason, digest = (str(header[name]) for name in ("kind", "reason", "digest"))
    except (ValueError, KeyError, TypeError) as error:
        raise Unreachable(f"the header of a frame is not one of ours: {error}.") from error
    letter = _read(line, size)
    if digest_of(letter) != digest:
        raise Unreachable("a letter was damaged on its way.")
    return Parcel(kind, letter, reason)


def _read(line: socket.socket, size: int) -> bytes:
    parts, left = [], size
    while left:
        part = line.recv(min(left, CHUNK))
        if not part:
            raise Unreachable(f"the line went dead with {left} of {size} bytes to come.")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _checked(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    if len(os.fsencode(text)) > LONGEST_PATH:
        raise Unreachable(
            f"the path of the socket has {len(os.fsencode(text))} bytes, at most {LONGEST_PATH} are "
            f"possible: {text}. Use a folder with a shorter name."
        )
    return text


@contextlib.contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """A socket in a folder that nobody else may enter. One that a dead daemon left behind is replaced."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.bind(_checked(path))
        path.chmod(0o600)
        door.listen(64)
        try:
            yield door
        finally:
            path.unlink(missing_ok=True)


def serve_one(door: socket.socket, answer: Callable[[Parcel], Parcel]) -> bool:
    """Answer one letter, if one comes before the door's timeout. Who hangs up early misses the answer."""
    try:
        line, _ = door.accept()
    except TimeoutError:
        return False
    with line:
        line.settimeout(PATIENCE_S)
        with contextlib.suppress(OSError, Unreachable):
            parcel = receive(line)
            said = answer(parcel)
            line.settimeout(PATIENCE_S)
            send(line, said)
    return True
