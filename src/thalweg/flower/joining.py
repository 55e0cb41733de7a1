"""A client's side of Flower as one thing: the daemon that is the client, and a SuperNode, kept alive.

Either may be killed: the daemon goes on from the state folder, and a SuperNode is only a line to the server. The
daemon's own reason to stop (it may not take part) ends both.
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
from thalweg.flower.attempts import Attempts
from thalweg.flower.following import Follower
from thalweg.flower.processes import Child, end_all, free_port, program, surroundings
from thalweg.flower.trust import NodeTrust

LONGEST_SOCKET = 90  # bytes; systems allow little more
NOT_LET_IN = "Exit Code: 305"  # of Flower: the server answered, and does not want this node
REFUSED_S = 180.0  # until we believe it: a server that starts has not read its keys yet, and one whose node was
# killed takes the node for connected up to a minute longer
Event = Mapping[str, Any]


class Joining:
    """What `thalweg join` starts, between start and close."""

    def __init__(
        self, server: str, state: Path, trust: NodeTrust | None, options: Sequence[str]
    ) -> None:
        self._server, self._state, self._trust = server, state.absolute(), trust
        self._options = list(options)  # of the daemon
        self._env = surroundings(self._state / "flower")
        self._socket = socket_for(self._state)
        self._log = self._state / "logs" / "daemon.log"
        self._events = Follower(self._log, from_end=True)
        self._children: dict[str, Child] = {}
        self._attempts = {"daemon": Attempts(), "SuperNode": Attempts()}
        self._shut_out_since: float | None = None
        self.refused: str | None = None  # why this client may not take part

    def start_daemon(self) -> None:
        command = [sys.executable, "-m", "thalweg.edge", "--state", str(self._state)]
        command += ["--socket", str(self._socket), *self._options]
        self._children["daemon"] = Child("the daemon", command, self._log, self._env)

    def start_node(self) -> None:
        """The line to the server. Its own port is for its children alone, on loopback."""
        command = [program("flower-supernode", self._env), "--superlink", self._server]
        command += ["--host", "127.0.0.1", "--port", str(free_port())]
        command += ["--node-config", f"thalweg-socket={json.dumps(str(self._socket))}"]
        if self._trust is None:
            command += ["--insecure"]
        else:
            command += ["--root-certificates", str(self._trust.authority.absolute())]
            command += ["--auth-supernode-private-key", str(self._trust.key.absolute())]
        log = self._state / "logs" / "supernode.log"
        self._children["SuperNode"] = Child("the SuperNode", command, log, self._env)

    def events(self) -> list[Event]:
        """What the daemon has said since the last call."""
        events: list[Event] = [each for each in self._events.objects() if "event" in each]
        for event in events:
            if event["event"] == "refused":
                self.refused = str(event.get("reason", ""))
            if event["event"] == "round":
                self.calm()
        return events

    def calm(self) -> None:
        """It works: what died before is forgiven."""
        self._shut_out_since = None
        for attempts in self._attempts.values():
            attempts.calm()

    def tend(self, with_node: bool = True) -> list[str]:
        """Start again what died, once its time has come; say so. To be called several times a second."""
        news = []
        for name, child in list(self._children.items()):
            if child.code is not None:
                self._children.pop(name).end()
                news.append(self._mourn(name, child))
        if self.refused is None:
            self._start_missing(with_node)
        return [line for line in news if line]

    def close(self) -> None:
        """The SuperNode first: then the server knows at once that this client has left."""
        for name in ("SuperNode", "daemon"):
            if name in self._children:
                end_all([self._children.pop(name)])
        if self._socket.parent.parent != self._state:
            self._socket.unlink(missing_ok=True)
            self._socket.parent.rmdir()

    def _start_missing(self, with_node: bool) -> None:
        starts = {"daemon": self.start_daemon} | (
            {"SuperNode": self.start_node} if with_node else {}
        )
        for name, start in starts.items():
            if name not in self._children and self._attempts[name].is_due():
                start()

    def _mourn(self, name: str, child: Child) -> str:
        """What to say of a death, if anything; when to try again."""
        self.events()  # its last words may be a reason
        if name == "daemon" and child.code == 1 and self.refused is None:
            self.refused = child.last_lines(1).removeprefix("  | ")
        wait_s = self._attempts[name].died()
        if name == "SuperNode" and NOT_LET_IN in child.said():
            return self._shut_out(child)
        return f"{child.name} ended with code {child.code}; it is started again in {wait_s:g} s (see {child.log})"

    def _shut_out(self, child: Child) -> str:
        """Say it once, then try for a while, and say it for good."""
        answers = [line for line in child.said().splitlines() if line.startswith("[code:")]
        answer = answers[-1] if answers else "no reason was given"
        reason = f"{self._server} does not let this node in ({answer})"
        if self._trust is not None:
            reason += (
                f"; either it does not know the key {self._trust.key} (copy the node.pub beside it into nodes/ of "
                "the server's certificates, under a name of its own such as 7.pub), or another SuperNode is "
                "connected with it"
            )
        is_first = self._shut_out_since is None
        since = self._shut_out_since = self._shut_out_since or time.monotonic()
        if time.monotonic() - since > REFUSED_S:
            raise RunError(f"{reason}.")
        return f"{reason}; trying again for {REFUSED_S / 60:.0f} minutes." if is_first else ""


def socket_for(state: Path) -> Path:
    """Where the daemon listens: in the state folder, unless its name is too long for a socket."""
    path = state / "socket" / "daemon"
    if len(os.fsencode(path)) <= LONGEST_SOCKET:
        return path
    return Path(tempfile.mkdtemp(prefix="thalweg-")) / "daemon"
