"""The server's side of Flower as one thing: SuperLink, SuperExec and the submitted app, kept alive.

The SuperLink keeps its messages in a database and the ServerApp is started by a SuperExec beside it, so either
may be killed: the SuperLink goes on where it was, and a ServerApp that died is submitted again and goes on from
the run folder's checkpoint. What dies again and again without a round in between is given up, with its last words.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thalweg.core.errors import RunError
from thalweg.engine.folder import RunFolder
from thalweg.flower.attempts import Attempts
from thalweg.flower.attending import is_attended
from thalweg.flower.processes import (
    HERE,
    Child,
    await_health,
    check_port,
    end_all,
    program,
    reach,
    surroundings,
)
from thalweg.flower.trust import ServerTrust

CONNECTION = "thalweg"  # its name in Flower's configuration
PARTS = ("SuperLink", "SuperExec", "ServerApp")
MOST_RESTARTS = 6  # of one part, without a round in between
START_S = 120.0  # that Flower may take to be up, or to start the app


@dataclass(frozen=True)
class Place:
    """Where a server listens and keeps its things, and whom it believes."""

    host: str
    port: int
    state: Path
    trust: ServerTrust | None = None

    @property
    def authority(self) -> Path | None:
        return None if self.trust is None else self.trust.authority


class Hosting:
    """What `thalweg serve` starts, between start and close."""

    def __init__(self, place: Place, app: Path, run_folder: Path) -> None:
        self.place, self._app, self._run_folder = place, app, run_folder
        self._home = place.state / "flower"
        self._logs = place.state / "logs"
        self._env = surroundings(self._home)
        self._children: dict[str, Child] = {}
        self._attempts = {name: Attempts(most_s=8.0) for name in PARTS}
        self._registered: set[str] = set()
        self._submitted_at: float | None = None  # None: the app has been seen at work since

    def start(self) -> None:
        """Everything up, and the app submitted."""
        check_port(self.place.host, self.place.port)
        self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._write_connection()
        self._start_link()
        self.register()
        self._start_executor()
        self._submit()

    def tend(self) -> list[str]:
        """Look after everything once; say what had to be done. To be called several times a second."""
        for name, start in (("SuperLink", self._start_link), ("SuperExec", self._start_executor)):
            if self._children[name].code is not None:
                news = self._count(name, self._children[name])
                with suppress(RunError):  # it died again; it is counted next time
                    start()
                return [news]
        return self._tend_app()

    def calm(self) -> None:
        """A round was played: what died before is forgiven."""
        for attempts in self._attempts.values():
            attempts.calm()

    def register(self) -> list[str]:
        """Let the keys in that are in the folder and were not yet; their names."""
        keys = {} if self.place.trust is None else self.place.trust.node_keys()
        new = [name for name in keys if name not in self._registered]
        if not new:
            return []
        said = self._command(
            *(["supernode", "register", str(keys[name]), CONNECTION] for name in new)
        )
        for name, answer in zip(new, said, strict=True):
            reason = str(answer.get("error-message", ""))
            if not answer.get("success") and "already in use" not in reason:
                raise RunError(f"the SuperLink does not take the key {keys[name]}: {reason}")
            self._registered.add(name)
        return new

    def close(self) -> None:
        end_all(list(self._children.values()))
        self._children.clear()

    # --- the parts ---

    def _start_link(self) -> None:
        place, trust = self.place, self.place.trust
        command = [sys.executable, "-P", str(HERE / "door.py"), "--host", place.host.strip("[]")]
        command += ["--port", str(place.port), "--database", str(place.state / "superlink.db")]
        command += ["--isolation", "process", "--disable-runtime-dependency-installation"]
        if trust is None:
            command += ["--insecure"]
        else:
            command += ["--ssl-ca-certfile", str(trust.authority), "--enable-supernode-auth"]
            command += ["--ssl-certfile", str(trust.certificate), "--ssl-keyfile", str(trust.key)]
        child = self._begin("SuperLink", command)
        host, _ = reach(place.host, place.port)
        await_health(child, host, place.port, place.authority, START_S)

    def _start_executor(self) -> None:
        _, address = reach(self.place.host, self.place.port)
        command = [program("flower-superexec", self._env), "--runtime-api-address", address]
        if self.place.authority is None:
            command += ["--insecure"]
        else:
            command += ["--root-certificates", str(self.place.authority)]
        self._begin("SuperExec", command)

    def _begin(self, name: str, command: list[str]) -> Child:
        if name in self._children:
            self._children.pop(name).end()
        child = Child(name, command, self._logs / f"{name.lower()}.log", self._env)
        self._children[name] = child
        return child

    def _submit(self) -> None:
        """Start the app. The one before, if it died, is declared over: else nodes wait for the rest of its messages
        until Flower notices, for most of a minute.
        """
        RunFolder(self._run_folder).write_failure(None)
        memo = self._home / "submitted"
        last = memo.read_text().strip() if memo.exists() else ""
        over = [["stop", last, CONNECTION]] if last.isdigit() else []
        answer = self._command(*over, ["run", str(self._app), CONNECTION])[-1]
        if not answer.get("success"):
            raise RunError(f"Flower did not take the app: {answer.get('error-message', answer)}")
        memo.write_text(str(answer.get("run-id", "")))
        self._submitted_at = time.monotonic()

    # --- when something died ---

    def _tend_app(self) -> list[str]:
        if is_attended(self._run_folder):
            self._submitted_at = None
            return []
        folder = RunFolder(self._run_folder)
        if (reason := folder.failure()) is not None:
            raise RunError(reason)
        if (self._run_folder / "summary.json").exists():
            return []  # it has ended as it should
        if self._submitted_at is not None and time.monotonic() - self._submitted_at < START_S:
            return []  # it has not come up yet
        news = self._count("ServerApp", self._children["SuperExec"])
        self._submitted_at = None
        try:
            self._submit()
        except RunError as error:  # the SuperLink may just have died
            return [news, f"not yet: {error}"]
        return [news]

    def _count(self, name: str, child: Child) -> str:
        """Once more, a little later each time, but not for ever."""
        attempts = self._attempts[name]
        if attempts.count >= MOST_RESTARTS:
            raise RunError(
                f"{name} died {attempts.count + 1} times without a round in between; last lines of "
                f"{child.log}:\n{child.last_lines()}\nThe run can be resumed (--resume)."
            )
        time.sleep(attempts.died())
        return f"{name} died; it is started again, and the run goes on."

    # --- speaking to the SuperLink ---

    def _write_connection(self) -> None:
        _, address = reach(self.place.host, self.place.port)
        authority = self.place.authority
        trust = (
            "insecure = true"
            if authority is None
            else f"root-certificates = {json.dumps(str(authority.absolute()))}"
        )
        text = f"[superlink.{CONNECTION}]\naddress = {json.dumps(address)}\n{trust}\n"
        (self._home / "config.toml").write_text(text)

    def _command(self, *commands: list[str]) -> list[dict[str, Any]]:
        """Give the SuperLink commands; its answers, one each."""
        wanted = json.dumps([[*words, "--format", "json"] for words in commands])
        try:
            done = subprocess.run(
                [sys.executable, "-P", str(HERE / "control.py"), wanted],
                env=self._env,
                capture_output=True,
                text=True,
                timeout=START_S + 10 * len(commands),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise RunError(f"the SuperLink does not answer to {commands[0][0]}.") from error
        answers = json_objects(done.stdout)
        if len(answers) != len(commands):
            said = (done.stderr or done.stdout).strip()[-800:]
            raise RunError(f"the SuperLink could not be told to {commands[0][0]}: {said}")
        return answers


def json_objects(text: str) -> list[dict[str, Any]]:
    """JSON objects one after the other."""
    decoder, at, found = json.JSONDecoder(), 0, []
    while (at := text.find("{", at)) >= 0:
        try:
            value, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            break
        found.append(value)
    return found
