"""A client's side of Flower as one thing: the daemon that is the client, and a SuperNode, kept alive.

Either may be killed: the daemon goes on from the state folder, and a SuperNode is only a line to the server. The
daemon's own reason to stop (it may not take part) ends both.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from thalweg.core.errors import RunError
from thalweg.flower.attempts import Attempts
from thalweg.flower.following import Follower
from thalweg.flower.processes import Child, end_all, free_port, program, surroundings
from thalweg.flower.trust import NodeTrust

LONGEST_SOCKET = 90  # bytes; systems allow little more
NOT_LET_IN = 305 % 256  # Flower's exit code: the server answered, and does not want this node
MOST_REFUSALS = 5  # in a row: a server that is just starting has not read its keys yet
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
        for attempts in self._attempts.values():
            attempts.calm()

    def tend(self, with_node: bool = True) -> list[str]:
        """Start again what died, once its time has come; say so. To be called several times a second."""
        news = []
        for name, child in list(self._children.items()):
            if child.code is not None:
                news.append(self._mourn(name, child))
                self._children.pop(name).end()
        if self.refused is None:
            self._start_missing(with_node)
        return news

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
        self.events()  # its last words may be a reason
        if name == "daemon" and child.code == 1 and self.refused is None:
            self.refused = child.last_lines(1).removeprefix("  | ")
        if name == "SuperNode" and child.code == NOT_LET_IN:
            self._note_refusal(child)
        wait_s = self._attempts[name].died()
        return f"{child.name} ended with code {child.code}; it is started again in {wait_s:g} s (see {child.log})"

    def _note_refusal(self, child: Child) -> None:
        if self._attempts["SuperNode"].count < MOST_REFUSALS:
            return
        said = f"last lines of {child.log}:\n{child.last_lines(3)}"
        if self._trust is None:
            raise RunError(f"{self._server} does not let this node in; {said}")
        raise RunError(
            f"{self._server} does not let this node in: it does not know the key {self._trust.key}. Put the "
            f"node.pub beside it into server/nodes/ of the server's certificates, as 7.pub, say; {said}"
        )


def socket_for(state: Path) -> Path:
    """Where the daemon listens: in the state folder, unless its name is too long for a socket."""
    path = state / "socket" / "daemon"
    if len(os.fsencode(path)) <= LONGEST_SOCKET:
        return path
    return Path(tempfile.mkdtemp(prefix="thalweg-")) / "daemon"
