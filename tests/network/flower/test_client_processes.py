"""`ClientProcesses` with stand-ins for the daemon and the SuperNode."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from thalweg.core.errors import RunError
from thalweg.network.flower import client_processes
from thalweg.network.flower.client_processes import ClientProcesses, choose_socket_path

DENIED = "print('ERROR: Exit Code: 305'); print('[code: 2004] Failed to activate'); exit(1)"
REJECTED = """print('{"event": "rejected", "reason": "the server has 10 classes"}'); exit(1)"""
QUIET = "import time; time.sleep(600)"


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def code(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_rejected_daemon_stops_the_client_with_the_reason(tmp_path: Path) -> None:
    client = ClientProcesses("127.0.0.1:1", tmp_path, None, [])
    client._start("daemon", code(REJECTED))
    try:
        wait_for(lambda: bool(client.supervise(with_node=False)))
        assert client.rejection_reason == "the server has 10 classes"
        assert client.supervise(with_node=False) == []
        assert client._children == {}
    finally:
        client.close()


def test_dead_daemon_is_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = ClientProcesses("127.0.0.1:1", tmp_path, None, [])
    monkeypatch.setattr(client, "start_daemon", lambda: client._start("daemon", code(QUIET)))
    client._start("daemon", code("exit(9)"))
    try:
        wait_for(lambda: bool(client.supervise(with_node=False)))
        wait_for(lambda: client.supervise(with_node=False) == [] and "daemon" in client._children)
        assert client._children["daemon"].code is None
    finally:
        client.close()


def test_denied_node_is_reported_once_and_then_raises_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = ClientProcesses("127.0.0.1:1", tmp_path, None, [])
    monkeypatch.setattr(client, "start_daemon", lambda: None)
    monkeypatch.setattr(client, "start_node", lambda: client._start("SuperNode", code(DENIED)))
    messages: list[str] = []

    def has_attempts(times: int) -> bool:
        messages.extend(client.supervise())
        return client._backoffs["SuperNode"].count >= times

    try:
        wait_for(lambda: has_attempts(2))
        assert len(messages) == 1
        assert "does not accept this node ([code: 2004] Failed to activate)" in messages[0]
        monkeypatch.setattr(client_processes, "REJECTION_TIMEOUT_S", 0.0)
        with pytest.raises(RunError, match="does not accept this node"):
            wait_for(lambda: has_attempts(5))
    finally:
        client.close()


def test_events_of_an_earlier_process_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/daemon.log").write_text('{"event": "rejected", "reason": "long ago"}\n')
    client = ClientProcesses("127.0.0.1:1", tmp_path, None, [])
    assert client.events() == []
    assert client.rejection_reason is None
    client.close()


def test_socket_is_in_the_state_folder_unless_its_path_is_too_long(tmp_path: Path) -> None:
    assert choose_socket_path(Path("/s")) == Path("/s/socket/daemon")
    elsewhere = choose_socket_path(tmp_path / ("long" * 30))
    assert len(str(elsewhere)) < 90
    assert elsewhere.parent.stat().st_mode & 0o777 == 0o700
    elsewhere.parent.rmdir()
