"""The processes of a client: the daemon, the SuperNode and the runner, restarted when they exit.

The daemon is the client. The SuperNode connects to the server, and the runner passes messages
between the two (`network/flower/runner.py`). Any of them may be killed: the daemon continues from
the state folder, and the others have no state. If the daemon is rejected, all processes are
stopped.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from thalweg.core.errors import RunError
from thalweg.network.flower import runner
from thalweg.network.flower.processes import (
    Follower,
    GuardedProcess,
    free_port,
    make_environment,
    stop_all,
)
from thalweg.network.flower.timing import RestartBackoff
from thalweg.network.flower.trust import NodeTrust

PARTS = ("daemon", "runner", "SuperNode")
MAX_SOCKET_PATH_BYTES = 90  # most systems allow little more
NODE_REJECTED = "Exit Code: 305"  # Flower's exit code of a SuperNode that the server rejected
# A rejection may be temporary: a starting server has not read its keys yet, and a killed node
# counts as connected for up to a minute.
REJECTION_TIMEOUT_S = 180.0
Event = Mapping[str, Any]


class ClientProcesses:
    """The processes that `thalweg join` starts."""

    def __init__(
        self, server: str, state: Path, trust: NodeTrust | None, options: Sequence[str]
    ) -> None:
        self._server, self._state, self._trust = server, state.absolute(), trust
        self._options = list(options)  # options of the daemon
        self._env = make_environment(self._state / "flower")
        self._socket = choose_socket_path(self._state)
        self._secret = self._state / "flower" / "secret"
        self._secret.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._events = Follower(self._state / "logs" / "daemon.log", from_end=True)
        self._children: dict[str, GuardedProcess] = {}
        self._runner_command: list[str] = []  # empty before the SuperNode has started
        self._backoffs = {name: RestartBackoff() for name in PARTS}
        self._rejected_since: float | None = None
        self.rejection_reason: str | None = None  # why the server rejected this client

    def start_daemon(self) -> None:
        command = [sys.executable, "-m", "thalweg.network.edge", "--state", str(self._state)]
        command += ["--socket", str(self._socket), *self._options]
        self._start("daemon", command)

    def start_node(self) -> None:
        """Start the SuperNode and the runner. The SuperNode's own port is on loopback."""
        if "runner" in self._children:
            self._children.pop("runner").stop()  # it uses the port of the previous SuperNode
        runner.check_flower_version()
        runner.write_secret(self._secret)
        port = str(free_port())
        command = [sys.executable, "-m", "thalweg.network.flower.quick_node"]
        command += ["--isolation", "process", "--superexec-auth-secret-file", str(self._secret)]
        command += ["--superlink", self._server, "--host", "127.0.0.1", "--port", port]
        command += ["--node-config", f"thalweg-socket={json.dumps(str(self._socket))}"]
        if self._trust is None:
            command += ["--insecure"]
        else:
            command += ["--root-certificates", str(self._trust.authority.absolute())]
            command += ["--auth-supernode-private-key", str(self._trust.key.absolute())]
        self._start("SuperNode", command)
        self._runner_command = [sys.executable, "-m", "thalweg.network.flower.runner"]
        self._runner_command += ["--runtime-api-address", f"127.0.0.1:{port}"]
        self._runner_command += ["--superexec-auth-secret-file", str(self._secret)]
        self._start("runner", self._runner_command)

    def events(self) -> list[Event]:
        """Return the daemon's events since the last call."""
        events: list[Event] = [each for each in self._events.read_objects() if "event" in each]
        for event in events:
            if event["event"] == "rejected":
                self.rejection_reason = str(event.get("reason", ""))
            if event["event"] == "round":
                self.reset_backoff()
        return events

    def reset_backoff(self) -> None:
        """Reset the restart delays, because the processes work."""
        self._rejected_since = None
        for backoff in self._backoffs.values():
            backoff.reset_backoff()

    def supervise(self, with_node: bool = True) -> list[str]:
        """Restart ended processes when their delay is over; return messages about them.

        Call this several times a second.
        """
        messages = []
        for name, child in list(self._children.items()):
            if child.code is not None:
                self._children.pop(name).stop()
                messages.append(self._handle_exit(name, child))
        if self.rejection_reason is None:
            self._start_missing(with_node)
        return [line for line in messages if line]

    def close(self) -> None:
        """Stop all processes, the SuperNode first, so that the server notices at once."""
        for name in reversed(PARTS):
            if name in self._children:
                stop_all([self._children.pop(name)])
        if self._socket.parent.parent != self._state:
            self._socket.unlink(missing_ok=True)
            self._socket.parent.rmdir()

    def _start(self, name: str, command: list[str]) -> None:
        log = self._state / "logs" / f"{name.lower()}.log"
        self._children[name] = GuardedProcess(f"the {name}", command, log, self._env)

    def _start_missing(self, with_node: bool) -> None:
        due = [
            name for name in PARTS if name not in self._children and self._backoffs[name].is_due()
        ]
        if "daemon" in due:
            self.start_daemon()
        if "SuperNode" in due and with_node:
            self.start_node()
        elif "runner" in due and self._runner_command and "SuperNode" in self._children:
            self._start("runner", self._runner_command)

    def _handle_exit(self, name: str, child: GuardedProcess) -> str:
        """Schedule the restart of an ended process.

        Return a message about it, or an empty string.
        """
        self.events()  # the last event may be a rejection
        if name == "daemon" and child.code == 1 and self.rejection_reason is None:
            self.rejection_reason = child.last_lines(1).removeprefix("  | ")
        wait_s = self._backoffs[name].record_failure()
        if name == "SuperNode" and NODE_REJECTED in child.output():
            return self._handle_rejected_node(child)
        return (
            f"{child.name} ended with code {child.code}; it restarts in {wait_s:g} s "
            f"(see {child.log})"
        )

    def _handle_rejected_node(self, child: GuardedProcess) -> str:
        """Return a message at the first rejection; raise an error after `REJECTION_TIMEOUT_S`."""
        codes = [line for line in child.output().splitlines() if line.startswith("[code:")]
        code = codes[-1] if codes else "no reason was given"
        reason = f"{self._server} does not accept this node ({code})"
        if self._trust is not None:
            reason += (
                f"; either the key {self._trust.key} is not registered (copy the node.pub beside "
                "it to nodes/ of the server's certificates, under a new name such as 7.pub), or "
                "another SuperNode uses it"
            )
        is_first = self._rejected_since is None
        since = self._rejected_since = self._rejected_since or time.monotonic()
        if time.monotonic() - since > REJECTION_TIMEOUT_S:
            raise RunError(f"{reason}.")
        return (
            f"{reason}; trying again for {REJECTION_TIMEOUT_S / 60:.0f} minutes."
            if is_first
            else ""
        )


def choose_socket_path(state: Path) -> Path:
    """Return the path of the daemon's socket: in the state folder, unless the path is too long."""
    path = state / "socket" / "daemon"
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    return Path(tempfile.mkdtemp(prefix="thalweg-")) / "daemon"
