"""The processes of a server: SuperLink, SuperExec and the submitted app, restarted when they exit.

The SuperLink stores its messages in a database, and the SuperExec starts the ServerApp. Either may
be killed: the SuperLink continues from its database, and a ServerApp that exited is submitted again
and continues from the checkpoint in the run folder. After `MAX_RESTARTS` restarts of one process
without a completed round, an error with the end of its log is raised.
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
from thalweg.network.flower.node_keys import FILE as NODE_KEYS
from thalweg.network.flower.node_keys import NodeKeys, compute_key_digest, find_registered_node
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

CONNECTION = "thalweg"  # name of the connection in Flower's configuration
PARTS = ("SuperLink", "SuperExec", "ServerApp")
DATABASE = "superlink.db"
MAX_RESTARTS = 6  # of one process, without a completed round
START_TIMEOUT_S = 120.0  # for Flower's programs and for the app


@dataclass(frozen=True)
class ServerSettings:
    """Address, state folder and certificates of a server."""

    host: str
    port: int
    state: Path
    trust: ServerTrust | None = None

    @property
    def authority(self) -> Path | None:
        return None if self.trust is None else self.trust.authority


class ServerProcesses:
    """The processes that `thalweg serve` starts."""

    def __init__(self, settings: ServerSettings, app: Path, run_folder: Path) -> None:
        self.settings, self._app, self._run_folder = settings, app, run_folder
        self._home = settings.state / "flower"
        self._logs = settings.state / "logs"
        self._env = make_environment(self._home)
        self._children: dict[str, GuardedProcess] = {}
        self._backoffs = {name: RestartBackoff(max_s=8.0) for name in PARTS}
        self._registered: set[str] = set()
        self._node_keys_file = settings.state / NODE_KEYS
        self._submitted_at: float | None = None  # None: the app has been running since

    def start(self) -> None:
        """Start all processes and submit the app."""
        check_port(self.settings.host, self.settings.port)
        self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._write_connection()
        self._start_superlink()
        self.register()
        self.revoke()
        self._start_superexec()
        self._submit()

    def supervise(self) -> list[str]:
        """Restart ended processes; return messages about them. Call this several times a second."""
        for name, start in (
            ("SuperLink", self._start_superlink),
            ("SuperExec", self._start_superexec),
        ):
            if self._children[name].code is not None:
                message = self._count_restart(name, self._children[name])
                with suppress(RunError):  # it ended again, which the next call counts
                    start()
                return [message]
        return self._supervise_app()

    def reset_backoff(self) -> None:
        """Reset the restart delays after a completed round."""
        for backoff in self._backoffs.values():
            backoff.reset_backoff()

    def register(self) -> list[str]:
        """Register new public keys of the certificate folder with the SuperLink.

        Return their names.
        """
        keys = {} if self.settings.trust is None else self.settings.trust.node_keys()
        node_keys = NodeKeys(self._node_keys_file)
        digests = {
            name: compute_key_digest(file)
            for name, file in keys.items()
            if name not in self._registered
        }
        revoked = [name for name, digest in digests.items() if node_keys.is_revoked(digest)]
        if revoked:
            raise RunError(
                f"the key {keys[revoked[0]]} was revoked and cannot be registered again; delete "
                "the file, and make a new key with `thalweg certs`."
            )
        new = list(digests)
        if not new:
            return []
        responses = self._command(
            *(["supernode", "register", str(keys[name]), CONNECTION] for name in new)
        )
        for name, response in zip(new, responses, strict=True):
            reason = str(response.get("error-message", ""))
            if not response.get("success") and "already in use" not in reason:
                raise RunError(f"the SuperLink does not accept the key {keys[name]}: {reason}")
            node = response.get("node-id") or self._find_node(keys[name])
            node_keys.add(int(node), digests[name])
            self._registered.add(name)
        return new

    def _find_node(self, key: Path) -> int:
        """Return the node of a key that was registered before."""
        database = self.settings.state / DATABASE
        node = find_registered_node(database, key)
        if node is None:
            raise RunError(
                f"the key {key} is registered, but {database} does not have its node, to which the "
                "client's identity is bound. Use another folder (--state); keys are registered "
                "again."
            )
        return node

    def revoke(self) -> list[str]:
        """Unregister the keys whose files were deleted from the certificate folder.

        Their nodes are disconnected, and Flower does not accept these keys again. Return the
        digests of the keys.
        """
        if self.settings.trust is None:
            return []
        node_keys = NodeKeys(self._node_keys_file)
        present = {compute_key_digest(file) for file in self.settings.trust.node_keys().values()}
        gone = [key for key in node_keys.keys if not key.is_revoked and key.digest not in present]
        if not gone:
            return []
        responses = self._command(
            *(["supernode", "unregister", str(key.node), CONNECTION] for key in gone)
        )
        for key, response in zip(gone, responses, strict=True):
            reason = str(response.get("error-message", ""))
            if not response.get("success") and "already deleted" not in reason:
                raise RunError(f"the SuperLink does not unregister the node {key.node}: {reason}")
            node_keys.revoke(key)
        return [key.digest for key in gone]

    def close(self) -> None:
        stop_all(list(self._children.values()))
        self._children.clear()

    # --- processes ---

    def _start_superlink(self) -> None:
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
            str(settings.state / DATABASE),
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

    def _start_superexec(self) -> None:
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
        """Submit the app, and stop the previous run if there is one.

        Without the stop, nodes would wait for messages of the previous run until Flower's timeout
        of almost a minute.
        """
        RunFolder(self._run_folder).write_failure(None)
        run_id_file = self._home / "submitted"
        last = run_id_file.read_text().strip() if run_id_file.exists() else ""
        stop_last = [["stop", last, CONNECTION]] if last.isdigit() else []
        response = self._command(*stop_last, ["run", str(self._app), CONNECTION])[-1]
        if not response.get("success"):
            raise RunError(
                f"Flower did not accept the app: {response.get('error-message', response)}"
            )
        run_id_file.write_text(str(response.get("run-id", "")))
        self._submitted_at = time.monotonic()

    # --- restarts ---

    def _supervise_app(self) -> list[str]:
        if is_server_running(self._run_folder):
            self._submitted_at = None
            return []
        folder = RunFolder(self._run_folder)
        if (reason := folder.failure()) is not None:
            raise RunError(reason)
        if (self._run_folder / "summary.json").exists():
            return []  # the run is complete
        if (
            self._submitted_at is not None
            and time.monotonic() - self._submitted_at < START_TIMEOUT_S
        ):
            return []  # the app is still starting
        message = self._count_restart("ServerApp", self._children["SuperExec"])
        self._submitted_at = None
        try:
            self._submit()
        except RunError as error:  # the SuperLink may have ended
            return [message, f"restart failed, trying again: {error}"]
        return [message]

    def _count_restart(self, name: str, child: GuardedProcess) -> str:
        """Wait before a restart, longer each time; raise an error after `MAX_RESTARTS` restarts."""
        backoff = self._backoffs[name]
        if backoff.count >= MAX_RESTARTS:
            raise RunError(
                f"{name} ended {backoff.count + 1} times without a completed round; last lines of "
                f"{child.log}:\n{child.last_lines()}\nThe run can be resumed (--resume)."
            )
        time.sleep(backoff.record_failure())
        return f"{name} ended; it is restarted, and the run continues."

    # --- commands to the SuperLink ---

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
        """Send commands to the SuperLink; return one response per command."""
        arguments = json.dumps([[*command, "--format", "json"] for command in commands])
        try:
            done = subprocess.run(
                [sys.executable, "-P", str(PACKAGE_DIR / "control.py"), arguments],
                env=self._env,
                capture_output=True,
                text=True,
                timeout=START_TIMEOUT_S + 10 * len(commands),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise RunError(
                f"the SuperLink does not respond to the command {commands[0][0]}."
            ) from error
        responses = json_objects(done.stdout)
        if len(responses) != len(commands):
            output = (done.stderr or done.stdout).strip()[-800:]
            raise RunError(
                f"the SuperLink could not execute the command {commands[0][0]}: {output}"
            )
        return responses


def json_objects(text: str) -> list[dict[str, Any]]:
    """Parse JSON objects that follow one another in a text."""
    decoder, at, found = json.JSONDecoder(), 0, []
    while (at := text.find("{", at)) >= 0:
        try:
            value, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            break
        found.append(value)
    return found
