"""The ClientApp relays messages between Flower and the daemon of a device."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from thalweg.network.edge.socket import Frame, open_listener, receive, send, serve_one
from thalweg.network.flower import client_app
from thalweg.network.flower.client_app import DAEMON_UNREACHABLE, SOCKET, app
from thalweg.network.flower.messenger import pack, unpack


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tw") as folder:
        yield Path(folder) / "socket"


def message(content: RecordDict, kind: str = "train", ttl: float = 60.0) -> Message:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    made = Message(content, 7, kind, ttl=ttl)
    made.metadata.__dict__["_message_id"] = "m"
    return made


def context(path: Path | None) -> Context:
    config = {} if path is None else {SOCKET: str(path)}
    return Context(1, 7, config, RecordDict(), {})


def test_frames_round_trip_through_flower_messages() -> None:
    for frame in (Frame("request", b"abc"), Frame("identity", b""), Frame("rejected", b"", "no")):
        assert unpack(message(pack(frame))) == frame


@pytest.mark.parametrize(
    "content, reason",
    [
        (RecordDict(), "'header' is missing"),
        (RecordDict({"header": ConfigRecord({"kind": "a"})}), "'payload' is missing"),
    ],
)
def test_message_without_header_or_payload_is_lost(content: RecordDict, reason: str) -> None:
    frame = unpack(message(content))
    assert frame.kind == "lost"
    assert reason in frame.reason


def test_message_with_an_invalid_header_is_lost() -> None:
    content = pack(Frame("request", b"abc"))
    content.config_records["header"]["kind"] = 3
    assert unpack(message(content)).kind == "lost"
    content = pack(Frame("request", b"abc"))
    content.config_records["header"]["size"] = -2
    assert unpack(message(content)).payload == b""


@pytest.mark.parametrize("kind", ["train", "query"])
def test_daemon_receives_the_frame_and_its_response_is_returned(kind: str, path: Path) -> None:
    def answer(frame: Frame) -> Frame:
        return Frame(frame.kind, frame.payload.upper())

    with open_listener(path) as listener:
        listener.settimeout(20)
        thread = threading.Thread(target=serve_one, args=(listener, answer))
        thread.start()
        reply = app(message(pack(Frame("request", b"payload")), kind), context(path))
        thread.join()
    assert unpack(reply) == Frame("request", b"PAYLOAD")
    assert reply.metadata.reply_to_message_id == "m"


def test_frame_is_sent_again_to_a_restarted_daemon(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_app, "RETRY_INTERVAL_S", 0.01)
    seen: list[bytes] = []

    def serve_two_connections(listener: socket.socket) -> None:
        connection, _ = listener.accept()  # the first daemon receives the frame and dies
        with connection:
            seen.append(receive(connection).payload)
        connection, _ = listener.accept()
        with connection:
            seen.append(receive(connection).payload)
            send(connection, Frame("request", b"done"))

    with open_listener(path) as listener:
        listener.settimeout(20)
        thread = threading.Thread(target=serve_two_connections, args=(listener,))
        thread.start()
        reply = app(message(pack(Frame("request", b"payload"))), context(path))
        thread.join()
    assert (unpack(reply).payload, seen) == (b"done", [b"payload", b"payload"])


def test_unreachable_daemon_gives_an_error_with_a_reason(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_app, "RESTART_S", 0.1)
    monkeypatch.setattr(client_app, "RETRY_INTERVAL_S", 0.01)
    for node, reason in (
        (path, "the daemon of this client does not answer"),
        (None, f"has no {SOCKET}"),
    ):
        reply = app(message(pack(Frame("request", b"payload"))), context(node))
        assert reply.has_error()
        assert reply.error.code == DAEMON_UNREACHABLE
        assert reason in unpack(reply).reason
        assert str(path) not in unpack(reply).reason
        assert unpack(reply).kind == "lost"


def test_equal_frames_have_different_flower_object_ids() -> None:
    """Flower stores objects with equal bytes once and deletes them at the end of the first run."""
    first, second = (pack(Frame("identity", b"who are you?")) for _ in range(2))
    arrays = [content.array_records["payload"]["bytes"] for content in (first, second)]
    assert arrays[0].object_id != arrays[1].object_id
    assert unpack(message(first)) == unpack(message(second))


@pytest.mark.parametrize("ttl", [1e300, float("inf"), float("nan")])
def test_lifetime_that_no_timeout_can_have_is_shortened(ttl: float, path: Path) -> None:
    with open_listener(path) as listener:
        listener.settimeout(20)
        thread = threading.Thread(target=serve_one, args=(listener, lambda frame: frame))
        thread.start()
        sent = message(pack(Frame("request", b"payload")))
        sent.metadata.ttl = ttl
        reply = app(sent, context(path))
        thread.join()
    assert unpack(reply) == Frame("request", b"payload")
