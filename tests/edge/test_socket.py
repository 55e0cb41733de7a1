"""Letters over a unix socket: whole, or not at all."""

from __future__ import annotations

import socket
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from thalweg.edge.socket import (
    LENGTHS,
    Parcel,
    Unreachable,
    ask,
    listening,
    receive,
    send,
    serve_one,
)


@contextmanager
def door(answer: Callable[[Parcel], Parcel], letters: int = 1) -> Iterator[Path]:
    """Somebody who answers some letters, in a folder with a short name."""
    with tempfile.TemporaryDirectory(prefix="tw") as folder:
        path = Path(folder) / "inside" / "door"
        with listening(path) as line:
            line.settimeout(20)
            thread = threading.Thread(
                target=lambda: [serve_one(line, answer) for _ in range(letters)]
            )
            thread.start()
            yield path
            thread.join()


def twice(parcel: Parcel) -> Parcel:
    return Parcel(parcel.kind, parcel.letter * 2, "because")


def test_a_letter_goes_there_and_an_answer_comes_back() -> None:
    with door(twice, letters=2) as path:
        assert ask(path, "errand", b"ab" * 3_000_000, 20) == Parcel(
            "errand", b"ab" * 6_000_000, "because"
        )
        assert ask(path, "greeting", b"", 20) == Parcel("greeting", b"", "because")


def test_nobody_else_may_enter_the_folder() -> None:
    with door(twice) as path:
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        ask(path, "errand", b"", 20)
    assert not path.exists()


def test_who_hangs_up_early_harms_nobody() -> None:
    seen: list[str] = []

    def slow(parcel: Parcel) -> Parcel:
        seen.append(parcel.kind)
        return Parcel("errand", bytes(10_000_000))

    with door(slow, letters=3) as path:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(path))
            line.sendall(b"abc")
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(path))
            send(line, Parcel("left", b"x"))
        assert len(ask(path, "stays", b"x", 20).letter) == 10_000_000
    assert seen == ["left", "stays"]


@pytest.mark.parametrize(
    "frame, reason",
    [
        (LENGTHS.pack(1 << 20, 0), "too long"),
        (LENGTHS.pack(2, 1 << 60), "too long"),
        (LENGTHS.pack(2, 0) + b"[]", "not one of ours"),
        (LENGTHS.pack(2, 0) + b"{}", "not one of ours"),
        (LENGTHS.pack(44, 1) + b'{"kind": "a", "reason": "", "digest": "0"}  x', "damaged"),
        (LENGTHS.pack(50, 0) + b"{", "went dead with 49 of 50"),
    ],
)
def test_what_is_no_frame_is_refused(frame: bytes, reason: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(frame)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(Unreachable, match=reason):
            receive(ours)


def test_nobody_at_home_is_one_message(tmp_path: Path) -> None:
    nowhere = Path(tempfile.gettempdir()) / "thalweg" / "none"
    with pytest.raises(Unreachable, match=r"nobody answers at .*: No such file"):
        ask(nowhere, "errand", b"", 1)
    with pytest.raises(Unreachable, match="at most 100 are possible"):
        ask(tmp_path / ("long" * 30), "errand", b"", 1)


def test_a_socket_that_a_dead_daemon_left_behind_is_replaced() -> None:
    with tempfile.TemporaryDirectory(prefix="tw") as folder:
        path = Path(folder) / "door"
        path.write_text("old")
        with listening(path) as line:
            line.settimeout(0.01)
            assert serve_one(line, twice) is False
