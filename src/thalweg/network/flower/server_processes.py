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
from thalweg.engine.run_folder import RunFolder
from thalweg.network.flower.liveness import is_server_running
from thalweg.network.flower.processes import (
    PACKAGE_DIR,
    GuardedProcess,
    await_health,
    check_port,
    find_program,
    local_address,
    make_environment,
    stop_all,
)
from thalweg.network.flower.timing import RestartBackoff
from thalweg.network.flower.trust import ServerTrust

CONNECTION = "thalweg"  # its name in Flower's configuration
PARTS = ("SuperLink", "SuperExec", "ServerApp")
MAX_RESTARTS = 6  # of one part, without a round in between
START_TIMEOUT_S = 120.0  # that Flower may take to be up, or to start the app


@dataclass(frozen=True)
class ServerSettings:
    """Where a server listens and keeps its things, and whom it believes."""

    host: str
    port: int
    state: Path
    trust: ServerTrust | None = None

    @property
    def authority(self) -> Path | None:
        return None if self.trust is None else self.trust.authority


class ServerProcesses:
    """What `thalweg serve` starts, between start and close."""

    def __init__(self, settings: ServerSettings, app: Path, run_folder: Path) -> None:
        self.settings, self._app, self._run_folder = settings, app, run_folder
        self._home = settings.state / "flower"
        self._logs = settings.state / "logs"
        self._env = make_environment(self._home)
        self._children: dict[str, GuardedProcess] = {}
        self._attempts = {name: RestartBackoff(max_s=8.0) for name in PARTS}
        self._registered: set[str] = set()
        self._submitted_at: float | None = None  # None: the app has been seen at work since

    def start(self) -> None:
        """Everything up, and the app submitted."""
        check_port(self.settings.host, self.settings.port)
        self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._write_connection()
        self._start_link()
        self.register()
        self._start_executor()
        self._submit()

    def supervise(self) -> list[str]:
        """Look after everything once; say what had to be done. To be called several times a second."""
        for name, start in (("SuperLink", self._start_link), ("SuperExec", self._start_executor)):
            if self._children[name].code is not None:
                news = self._count_restart(name, self._children[name])
                with suppress(RunError):  # it died again; it is counted next time
                    start()
                return [news]
        return self._supervise_app()

    def reset_backoff(self) -> None:
        """A round was played: what died before is forgiven."""
        for attempts in self._attempts.values():
            attempts.reset_backoff()

    def register(self) -> list[str]:
        """Let the keys in that are in the folder and were not yet; their names."""
        keys = {} if self.settings.trust is None else self.settings.trust.node_keys()
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
        stop_all(list(self._children.values()))
        self._children.clear()

    # --- the parts ---

    def _start_link(self) -> None:
        settings, trust = self.settings, self.settings.trust
        command = [
            sys.executable,
            "-P",
            str(PACKAGE_DIR / "loopback_only.py"),
            "--host",
            settings.host.strip("[]"),
        ]
        command += [
            "--port",
            str(settings.port),
            "--database",
            str(settings.state / "superlink.db"),
        ]
        command += ["--isolation", "process", "--disable-runtime-dependency-installation"]
        if trust is None:
            command += ["--insecure"]
        else:
            command += ["--ssl-ca-certfile", str(trust.authority), "--enable-supernode-auth"]
            command += ["--ssl-certfile", str(trust.certificate), "--ssl-keyfile", str(trust.key)]
        child = self._start_child("SuperLink", command)
        host, _ = local_address(settings.host, settings.port)
        await_health(child, host, settings.port, settings.authority, START_TIMEOUT_S)

    def _start_executor(self) -> None:
        _, address = local_address(self.settings.host, self.settings.port)
        command = [find_program("flower-superexec", self._env), "--runtime-api-address", address]
        if self.settings.authority is None:
            command += ["--insecure"]
        else:
            command += ["--root-certificates", str(self.settings.authority)]
        self._start_child("SuperExec", command)

    def _start_child(self, name: str, command: list[str]) -> GuardedProcess:
        if name in self._children:
            self._children.pop(name).stop()
        child = GuardedProcess(name, command, self._logs / f"{name.lower()}.log", self._env)
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

    def _supervise_app(self) -> list[str]:
        if is_server_running(self._run_folder):
            self._submitted_at = None
            return []
        folder = RunFolder(self._run_folder)
        if (reason := folder.failure()) is not None:
            raise RunError(reason)
        if (self._run_folder / "summary.json").exists():
            return []  # it has ended as it should
        if (
            self._submitted_at is not None
            and time.monotonic() - self._submitted_at < START_TIMEOUT_S
        ):
            return []  # it has not come up yet
        news = self._count_restart("ServerApp", self._children["SuperExec"])
        self._submitted_at = None
        try:
            self._submit()
        except RunError as error:  # the SuperLink may just have died
            return [news, f"not yet: {error}"]
        return [news]

    def _count_restart(self, name: str, child: GuardedProcess) -> str:
        """Once more, a little later each time, but not for ever."""
        attempts = self._attempts[name]
        if attempts.count >= MAX_RESTARTS:
            raise RunError(
                f"{name} died {attempts.count + 1} times without a round in between; last lines of "
                f"{child.log}:\n{child.last_lines()}\nThe run can be resumed (--resume)."
            )
        time.sleep(attempts.record_failure())
        return f"{name} died; it is started again, and the run goes on."

    # --- speaking to the SuperLink ---

    def _write_connection(self) -> None:
        _, address = local_address(self.settings.host, self.settings.port)
        authority = self.settings.authority
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
                [sys.executable, "-P", str(PACKAGE_DIR / "control.py"), wanted],
                env=self._env,
                capture_output=True,
                text=True,
                timeout=START_TIMEOUT_S + 10 * len(commands),
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
