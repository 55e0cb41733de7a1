"""Start the real Flower processes on loopback; all of them end with the block."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import thalweg
from thalweg.network.flower import control
from thalweg.network.flower.runner import write_secret
from thalweg.network.flower.server_processes import json_objects

PROGRAMS = Path(sys.executable).parent
APP = """
[project]
name = "thalweg-test"
version = "1.0.0"
license = "Apache-2.0"
[tool.flwr.app]
publisher = "local"
[tool.flwr.app.components]
serverapp = "thalweg.network.flower.server_app:app"
clientapp = "thalweg.network.flower.client_app:app"
[tool.flwr.app.config]
thalweg-run = ""
"""


class Loopback:
    """A SuperLink, a SuperExec, SuperNodes and daemons on loopback."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.sockets = Path(tempfile.mkdtemp(prefix="tw"))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.submitted = ""  # id of the last Flower run
        source = str(Path(thalweg.__file__).parents[1])
        self.env = {
            **os.environ,
            "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": source,
            "FLWR_HOME": str(folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
            "OMP_NUM_THREADS": "1",
        }
        (folder / "flwr").mkdir(parents=True)
        (folder / "app").mkdir()
        (folder / "app" / "pyproject.toml").write_text(APP)
        (folder / "flwr" / "config.toml").write_text(
            f'[superlink.here]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )

    def start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, env=self.env, stdout=log, stderr=log, start_new_session=True
            )

    def start_link(self) -> None:
        here = ("--insecure", "--host", "127.0.0.1", "--port", str(self.port))
        self.start("superlink", "flower-superlink", *here, "--isolation", "process")
        await_true(self._is_healthy, 120)
        address = ("--insecure", "--runtime-api-address", f"127.0.0.1:{self.port}")
        self.start("superexec", "flower-superexec", *address)

    def start_device(self, number: int, is_quick: bool = True) -> None:
        self.start_daemon(number)
        self.start_node(number, is_quick)

    def start_daemon(self, number: int, state_of: Path | None = None, *options: str) -> None:
        state = ("--state", str((state_of or self.folder) / f"state{number}"))
        where = ("--socket", str(self.socket(number)), "--client", str(number))
        module = (sys.executable, "-m", "thalweg.network.edge")
        self.start(f"daemon{number}", *module, *state, *where, *options)

    def start_node(self, number: int, is_quick: bool = True) -> None:
        """Start a SuperNode with a runner, or one that starts a process per message."""
        config = f'thalweg-socket="{self.socket(number)}"'
        own = ["--host", "127.0.0.1", "--port", str(port := free_port()), "--node-config", config]
        own += ["--insecure", "--superlink", f"127.0.0.1:{self.port}"]
        if not is_quick:
            self.start(f"node{number}", "flower-supernode", *own)
            return
        write_secret(secret := self.folder / f"secret{number}")
        known = ("--superexec-auth-secret-file", str(secret))
        module = (sys.executable, "-m", "thalweg.network.flower.quick_node")
        self.start(f"node{number}", *module, *own, "--isolation", "process", *known)
        module = (sys.executable, "-m", "thalweg.network.flower.runner")
        address = ("--runtime-api-address", f"127.0.0.1:{port}")
        self.start(f"runner{number}", *module, *address, *known)

    def socket(self, number: int) -> Path:
        return self.sockets / f"{number}"

    def submit(self, run: Path, app: Path | None = None) -> str:
        """Stop the last Flower run, submit a new one and return its id."""
        config = ("--run-config", f'thalweg-run="{run}"')
        requests = [["run", str(app or self.folder / "app"), "here", *config]]
        if self.submitted:
            requests.insert(0, ["stop", self.submitted, "here"])
        commands = json.dumps([[*each, "--format", "json"] for each in requests])
        command = [sys.executable, "-P", control.__file__, commands]
        completed = subprocess.run(
            command, env=self.env, capture_output=True, text=True, timeout=120
        )
        assert completed.returncode == 0, completed.stdout + completed.stderr
        self.submitted = str(json_objects(completed.stdout)[-1]["run-id"])
        return self.submitted

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Kill a process and its children."""
        process = self.processes.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        process.wait(30)

    def kill_server_app(self) -> None:
        """Kill only the ServerApp, as soon as it is running."""
        await_true(self._has_killed_server_app, 240)

    def _has_killed_server_app(self) -> bool:
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, ProcessLookupError):
                is_ours = os.getpgid(int(folder.name)) == self.processes["superexec"].pid
                if is_ours and b"flwr-serverapp" in (folder / "cmdline").read_bytes():
                    os.kill(int(folder.name), signal.SIGKILL)
                    return True
        return False

    def end(self) -> None:
        for name in list(self.processes):
            self.kill(name)

    def _is_healthy(self) -> bool:
        with suppress(OSError):
            url = f"http://127.0.0.1:{self.port}/health"
            with urllib.request.urlopen(url, timeout=5) as response:
                return bool(response.status == 200)
        return False


@contextmanager
def loopback(folder: Path) -> Iterator[Loopback]:
    deployment = Loopback(folder)
    try:
        deployment.start_link()
        yield deployment
    finally:
        deployment.end()


def await_true(condition: object, seconds: float) -> None:
    assert callable(condition)
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"the condition is false after {seconds} seconds"
        time.sleep(0.2)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
