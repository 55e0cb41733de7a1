"""Starts Flower's programs as child processes, monitors them, and stops them.

Each child runs under a guard (`network/flower/guard.py`), which writes its log and terminates it
with all its processes when we stop it, exit, or are killed.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from thalweg.core.errors import ConfigError, RunError

PACKAGE_DIR = Path(__file__).parent
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
FLOWER_ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
    "PYTHONUNBUFFERED": "1",
}


def make_environment(home: Path) -> dict[str, str]:
    """Environment of Flower's programs: our Python first, an own home folder, no telemetry."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("FLWR_")}
    env.pop("FORWARDED_ALLOW_IPS", None)  # no proxy may change the address of a client
    programs = str(Path(sys.executable).parent)
    return (
        env
        | FLOWER_ENVIRONMENT
        | {"FLWR_HOME": str(home), "PATH": f"{programs}{os.pathsep}{env['PATH']}"}
    )


def find_program(name: str, env: Mapping[str, str]) -> str:
    """Return the path of one of Flower's programs."""
    if (found := shutil.which(name, path=env["PATH"])) is None:
        raise ConfigError(
            f"{name} was not found; it comes with Flower: pip install 'thalweg[flower]'."
        )
    return found


class GuardedProcess:
    """A program that runs under a guard."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str]
    ) -> None:
        self.name, self.log = name, log
        log.parent.mkdir(parents=True, exist_ok=True)
        self._began_at = log.stat().st_size if log.exists() else 0
        guard = [sys.executable, "-I", str(PACKAGE_DIR / "guard.py"), str(log), *command]
        self._guard = subprocess.Popen(
            guard,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(env),
            # So that Ctrl-C reaches only us, and we stop the children in order.
            start_new_session=True,
        )

    @property
    def code(self) -> int | None:
        """The exit code; None while the program runs."""
        return self._guard.poll()

    def request_stop(self) -> None:
        """Request termination without waiting."""
        if self._guard.stdin is not None:
            with contextlib.suppress(OSError):
                self._guard.stdin.close()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Terminate the program and all its processes, with SIGKILL if necessary."""
        self.request_stop()
        try:
            self._guard.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()

    def output(self) -> str:
        """The output since the start, as far as it is still in the log."""
        try:
            with self.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(self._began_at if size >= self._began_at else 0)
                return file.read(200_000).decode(errors="replace")
        except OSError:
            return ""

    def last_lines(self, count: int = 6) -> str:
        lines = [
            line.strip() for line in COLOUR.sub("", self.output()).splitlines() if line.strip()
        ]
        return "\n".join(f"  | {line}" for line in lines[-count:]) or "  | (no output)"


def stop_all(children: Sequence[GuardedProcess]) -> None:
    """Stop all children at the same time, the last started first."""
    for child in reversed(children):
        child.request_stop()
    for child in reversed(children):
        child.stop()


def check_port(host: str, port: int) -> None:
    """Raise an error if a port is in use or not permitted."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
        except PermissionError:
            raise ConfigError(
                f"port {port} is reserved for the system; choose one above 1023 with --port."
            ) from None
        except OSError as error:
            raise ConfigError(
                f"port {port} of {host} is not available ({error.strerror}). Stop the other "
                "server, or choose another port with --port."
            ) from None


def free_port() -> int:
    """Return a loopback port that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def local_address(host: str, port: int) -> tuple[str, str]:
    """Return the host and host:port by which this machine connects to a server listening at `host`.

    >>> local_address("0.0.0.0", 8000), local_address("::1", 8000)
    (('127.0.0.1', '127.0.0.1:8000'), ('::1', '[::1]:8000'))
    """
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host.strip("[]"), host.strip("[]"))
    return host, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def await_health(
    child: GuardedProcess, host: str, port: int, authority: Path | None, wait_s: float
) -> None:
    """Wait until a SuperLink is healthy; raise an error with the end of its log if it exits."""
    until = time.monotonic() + wait_s
    while not is_healthy(host, port, authority):
        if child.code is not None:
            raise RunError(
                f"{child.name} ended with code {child.code} before it was ready; its last lines, "
                "of "
                f"{child.log}:\n{child.last_lines()}"
            )
        if time.monotonic() > until:
            raise RunError(
                f"{child.name} was not ready after {wait_s:.0f} s; its last lines, of "
                f"{child.log}:\n"
                f"{child.last_lines()}"
            )
        time.sleep(0.1)


def is_healthy(host: str, port: int, authority: Path | None) -> bool:
    """Return whether a SuperLink responds to a health check."""
    connection: http.client.HTTPConnection
    if authority is None:
        connection = http.client.HTTPConnection(host, port, timeout=5.0)
    else:
        context = ssl.create_default_context(cafile=str(authority))
        connection = http.client.HTTPSConnection(host, port, timeout=5.0, context=context)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class Follower:
    """Reads lines that another process appends to a file; starts again if the file is replaced."""

    def __init__(self, path: Path, from_end: bool = False) -> None:
        self._path, self._rest = path, b""
        self._inode, self._at = 0, 0
        if from_end and path.exists():
            status = path.stat()
            self._inode, self._at = status.st_ino, status.st_size

    def read_lines(self) -> list[str]:
        """Complete lines since the last call."""
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._at:
                    self._inode, self._at, self._rest = status.st_ino, 0, b""
                file.seek(self._at)
                added = file.read()
        except OSError:
            return []
        self._at += len(added)
        *lines, self._rest = (self._rest + added).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def read_objects(self) -> list[dict[str, Any]]:
        """New lines that are JSON objects; other lines are skipped."""
        found = []
        for line in self.read_lines():
            if line.startswith("{"):
                try:
                    value = json.loads(line)
                except json.JSONDecodeError:
                    continue
                found.append(value)
        return found
