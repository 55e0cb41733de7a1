"""The runner that relays messages without one process per message; `test_real` runs it for real."""

from __future__ import annotations

import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.supernode import start_client_internal

from thalweg.core.errors import ConfigError
from thalweg.network.flower import quick_node, runner
from thalweg.network.flower.client_processes import ClientProcesses


def test_runner_supports_one_version_of_flower(monkeypatch: pytest.MonkeyPatch) -> None:
    runner.check_flower_version()
    monkeypatch.setattr(runner.metadata, "version", lambda name: "1.42.0")
    with pytest.raises(ConfigError, match=r"expected Flower 1\.41\.x, got 1\.42\.0.*pip install"):
        runner.check_flower_version()


def test_node_of_another_version_of_flower_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its SuperNode would run the program of the server."""
    monkeypatch.setattr(runner.metadata, "version", lambda name: "1.42.0")
    client = ClientProcesses("127.0.0.1:1", tmp_path, None, [])
    monkeypatch.setattr(client, "_start", lambda name, command: pytest.fail("it was started"))
    with pytest.raises(ConfigError, match="expected Flower"):
        client.start_node()
    client.close()


def test_secret_is_random_and_readable_only_by_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    runner.write_secret(path)
    first = path.read_text()
    assert (len(first), stat.S_IMODE(path.stat().st_mode)) == (64, 0o600)
    runner.write_secret(path)
    assert path.read_text() != first


def test_shorten_pauses_affects_only_the_supernode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(start_client_internal, "time", time)
    sleep = time.sleep
    quick_node.shorten_pauses()
    monkeypatch.setattr(time, "sleep", pauses.append)
    start_client_internal.time.sleep(3)
    start_client_internal.time.sleep(0.1)
    monkeypatch.setattr(time, "sleep", sleep)
    assert pauses == [quick_node.MIN_POLL_S, 0.1]
    assert time.sleep is sleep


def test_missing_flower_is_reported_with_the_install_command() -> None:
    code = (
        "import importlib.util as u; u.find_spec = lambda name: None\n"
        "import thalweg.network.flower.client_app"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ConfigError: Flower is not installed" in completed.stderr
    assert "pip install 'thalweg[flower]'" in completed.stderr


def test_client_app_does_not_import_torch() -> None:
    code = "import sys, thalweg.network.flower.client_app; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


class NoMoreTasks(Exception):
    """Ends the loop of the runner."""


def test_incomplete_message_does_not_block_other_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens, never, is_relayed = ["stuck", "next"], threading.Event(), threading.Event()

    def acquire(request: Any) -> Any:
        if tokens:
            return SimpleNamespace(token=tokens.pop(0))
        assert is_relayed.wait(60)
        raise NoMoreTasks

    def relay_task(address: str, token: str, turn: threading.Lock) -> None:
        never.wait() if token == "stuck" else is_relayed.set()

    monkeypatch.setattr(runner, "_make_client", lambda *_: SimpleNamespace(AcquireTask=acquire))
    monkeypatch.setattr(runner, "relay_task", relay_task)
    try:
        with pytest.raises(NoMoreTasks):
            runner.run("127.0.0.1:1", None)
    finally:
        never.set()
