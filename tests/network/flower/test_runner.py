"""The quick way from a SuperNode to the daemon; that it works is in `test_real`."""

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

from thalweg.network.flower import quick_node, runner


def test_it_is_for_one_version_of_flower(monkeypatch: pytest.MonkeyPatch) -> None:
    assert runner.is_supported()
    monkeypatch.setattr(runner.metadata, "version", lambda name: "1.42.0")
    assert not runner.is_supported()


def test_a_secret_is_the_owners_alone_and_another_every_time(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    runner.write_secret(path)
    first = path.read_text()
    assert (len(first), stat.S_IMODE(path.stat().st_mode)) == (64, 0o600)
    runner.write_secret(path)
    assert path.read_text() != first


def test_a_supernode_in_a_hurry_sleeps_less_and_nobody_else_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    naps: list[float] = []
    monkeypatch.setattr(start_client_internal, "time", time)
    sleep = time.sleep
    quick_node.shorten_pauses()
    monkeypatch.setattr(time, "sleep", naps.append)
    start_client_internal.time.sleep(3)
    start_client_internal.time.sleep(0.1)
    monkeypatch.setattr(time, "sleep", sleep)
    assert naps == [quick_node.MIN_POLL_S, 0.1]
    assert time.sleep is sleep


def test_a_device_without_flower_is_told_how_to_get_it() -> None:
    code = (
        "import importlib.util as u; u.find_spec = lambda name: None\n"
        "import thalweg.network.flower.client_app"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ConfigError: Flower is not installed" in said.stderr
    assert "pip install 'thalweg[flower]'" in said.stderr


def test_what_is_started_for_every_message_imports_no_torch() -> None:
    code = "import sys, thalweg.network.flower.client_app; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


class Over(Exception):
    """There are no more tasks, and the test may end."""


def test_a_message_that_will_never_be_whole_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens, never, is_carried = ["stuck", "next"], threading.Event(), threading.Event()

    def acquire(request: Any) -> Any:
        if tokens:
            return SimpleNamespace(token=tokens.pop(0))
        assert is_carried.wait(60)
        raise Over

    def relay_task(address: str, token: str, turn: threading.Lock) -> None:
        never.wait() if token == "stuck" else is_carried.set()

    monkeypatch.setattr(runner, "_make_client", lambda *_: SimpleNamespace(AcquireTask=acquire))
    monkeypatch.setattr(runner, "relay_task", relay_task)
    try:
        with pytest.raises(Over):
            runner.run("127.0.0.1:1", None)
    finally:
        never.set()
