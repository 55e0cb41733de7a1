"""Fixture for a real Mosquitto broker on a free local port."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


class Mosquitto:
    """A broker that can be stopped and restarted on the same port with the same sessions."""

    def __init__(self, folder: Path, *lines: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self._folder = folder
        self._config = folder / "mosquitto.conf"
        listener = (
            f"listener {self.port} 127.0.0.1",
            "persistence true",
            f"persistence_location {folder}/",
        )
        # Mosquitto started by root switches to a user that cannot write here.
        user = "user root" if folder.owner() == "root" else ""
        lines = lines or ("allow_anonymous true",)
        self._config.write_text("\n".join((*listener, user, *lines)) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> None:
        assert MOSQUITTO is not None
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [MOSQUITTO, "-c", str(self._config)], stdout=log, stderr=log
            )
        for _ in range(600):
            assert self._process.poll() is None, (self._folder / "log").read_text()
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError("the broker does not answer")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None


@pytest.fixture
def needs_mosquitto() -> None:
    if MOSQUITTO is None:
        pytest.skip("mosquitto is not installed (looked in PATH, /usr/sbin and /usr/local/sbin)")


@pytest.fixture
def broker(needs_mosquitto: None, tmp_path: Path) -> Iterator[Mosquitto]:
    mosquitto = Mosquitto(tmp_path)
    mosquitto.start()
    yield mosquitto
    mosquitto.stop()
