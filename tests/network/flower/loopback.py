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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import thalweg
from thalweg.engine.run_folder import RunFolder
from thalweg.network.flower import control
from thalweg.network.flower.runner import write_secret
from thalweg.network.flower.server_processes import json_objects

LIMIT_S = 300.0  # for each wait of a test
QUICK_NODE = ("-m", "thalweg.network.flower.quick_node")
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
        self.checks: list[Callable[[], None]] = []  # of other parts of the test; see `check`
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
        await_true(self._is_healthy, LIMIT_S, lambda: self.last_lines("superlink"))
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

    def start_node(
        self, number: int, is_quick: bool = True, program: tuple[str, ...] = QUICK_NODE
    ) -> None:
        """Start a SuperNode with a runner, or one that starts a process per message."""
        config = f'thalweg-socket="{self.socket(number)}"'
        own = ["--host", "127.0.0.1", "--port", str(port := free_port()), "--node-config", config]
        own += ["--insecure", "--superlink", f"127.0.0.1:{self.port}"]
        if not is_quick:
            self.start(f"node{number}", "flower-supernode", *own)
            return
        write_secret(secret := self.folder / f"secret{number}")
        known = ("--superexec-auth-secret-file", str(secret))
        quick = (sys.executable, *program, *own, "--isolation", "process")
        self.start(f"node{number}", *quick, *known)
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
        await_true(self._has_killed_server_app, LIMIT_S, lambda: "no ServerApp is running")

    def _has_killed_server_app(self) -> bool:
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, ProcessLookupError):
                is_ours = os.getpgid(int(folder.name)) == self.processes["superexec"].pid
                if is_ours and b"flwr-serverapp" in (folder / "cmdline").read_bytes():
                    os.kill(int(folder.name), signal.SIGKILL)
                    return True
        return False

    def check(self, run: Path) -> None:
        """Fail if the run, a part of the test or a process that the test has not killed failed."""
        for check in self.checks:
            check()
        for name, process in self.processes.items():
            code = process.poll()
            assert code is None or self.may_end(name, code), (
                f"{name} ended with code {code}:\n{self.last_lines(name)}"
            )
        self.check_server(run)

    def check_server(self, run: Path) -> None:
        reason = RunFolder(run).failure()
        assert reason is None, reason

    def may_end(self, name: str, code: int) -> bool:
        """Whether a process may end by itself with this code."""
        return False

    def await_true(self, run: Path, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition; fail after `LIMIT_S`, or at once if `check` fails."""

        def is_true() -> bool:
            self.check(run)
            return condition()

        await_true(is_true, LIMIT_S, lambda: f"{what}; last events:\n{last_events(run)}")

    def await_rounds(self, run: Path, rounds: int) -> None:
        # On a busy machine Flower may start the ServerApp several times until it is fast enough.
        self.await_true(run, (run / "events.jsonl").exists, "the ServerApp has started")
        self.await_true(run, lambda: len(RunFolder(run).metrics()) >= rounds, f"{rounds} rounds")

    def await_finish(self, run: Path, rounds: int) -> None:
        """Wait for the end of a run; the limit applies to each round."""
        for number in range(1, rounds + 1):
            self.await_rounds(run, number)
        self.await_true(run, lambda: RunFolder(run).is_finished(rounds), "the run is finished")

    def last_lines(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]

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


def await_true(
    condition: Callable[[], bool], seconds: float, describe: Callable[[], str] = lambda: ""
) -> None:
    """Wait for a condition; fail after this time. `describe` returns what the message says."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"false after {seconds} seconds: {describe()}"
        time.sleep(0.2)


def last_events(run: Path) -> str:
    """Return the last events of the server, for messages of tests that wait for too long."""
    file = run / "events.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return "\n".join(lines[-20:]) or "the server has no events"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
