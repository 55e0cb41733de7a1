"""Tests of framed requests over a unix socket."""

from __future__ import annotations

import socket
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from thalweg.network.edge.socket import (
    LENGTHS,
    Frame,
    Unreachable,
    open_listener,
    receive,
    send,
    send_request,
    serve_one,
)


@contextmanager
def listener(answer: Callable[[Frame], Frame], num_requests: int = 1) -> Iterator[Path]:
    """Answer a number of requests on a socket in a folder with a short name."""
    with tempfile.TemporaryDirectory(prefix="tw") as folder:
        path = Path(folder) / "inside" / "door"
        with open_listener(path) as line:
            line.settimeout(20)
            thread = threading.Thread(
                target=lambda: [serve_one(line, answer) for _ in range(num_requests)]
            )
            thread.start()
            yield path
            thread.join()


def double_payload(frame: Frame) -> Frame:
    return Frame(frame.kind, frame.payload * 2, "because")


def test_request_and_response_are_transferred_completely() -> None:
    with listener(double_payload, num_requests=2) as path:
        assert send_request(path, "request", b"ab" * 3_000_000, 20) == Frame(
            "request", b"ab" * 6_000_000, "because"
        )
        assert send_request(path, "identity", b"", 20) == Frame("identity", b"", "because")


def test_socket_folder_is_accessible_to_its_owner_only() -> None:
    with listener(double_payload) as path:
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        send_request(path, "request", b"", 20)
    assert not path.exists()


def test_client_that_disconnects_early_does_not_stop_the_listener() -> None:
    seen: list[str] = []

    def slow(frame: Frame) -> Frame:
        seen.append(frame.kind)
        return Frame("request", bytes(10_000_000))

    with listener(slow, num_requests=3) as path:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(path))
            line.sendall(b"abc")
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(path))
            send(line, Frame("left", b"x"))
        assert len(send_request(path, "stays", b"x", 20).payload) == 10_000_000
    assert seen == ["left", "stays"]


@pytest.mark.parametrize(
    "frame, reason",
    [
        (LENGTHS.pack(1 << 20, 0), "too long"),
        (LENGTHS.pack(2, 1 << 60), "too long"),
        (LENGTHS.pack(2, 0) + b"[]", "invalid frame header"),
        (LENGTHS.pack(2, 0) + b"{}", "invalid frame header"),
        (LENGTHS.pack(44, 1) + b'{"kind": "a", "reason": "", "digest": "0"}  x', "damaged"),
        (LENGTHS.pack(50, 0) + b"{", "ended with 49 of 50"),
    ],
)
def test_invalid_frames_are_rejected(frame: bytes, reason: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(frame)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(Unreachable, match=reason):
            receive(ours)


def test_missing_daemon_gives_one_line_error(tmp_path: Path) -> None:
    nowhere = Path(tempfile.gettempdir()) / "thalweg" / "none"
    with pytest.raises(Unreachable, match=r"does not answer at .*: No such file"):
        send_request(nowhere, "request", b"", 1)
    with pytest.raises(Unreachable, match="at most 100 are possible"):
        send_request(tmp_path / ("long" * 30), "request", b"", 1)


def test_stale_socket_of_a_dead_daemon_is_replaced() -> None:
    with tempfile.TemporaryDirectory(prefix="tw") as folder:
        path = Path(folder) / "door"
        path.write_text("old")
        with open_listener(path) as line:
            line.settimeout(0.01)
            assert serve_one(line, double_payload) is False
