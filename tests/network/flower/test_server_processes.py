"""`ServerProcesses` with stand-ins for the processes of Flower."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization as form

from thalweg.core.errors import RunError
from thalweg.network.flower import server_processes
from thalweg.network.flower.certs import make_certs
from thalweg.network.flower.liveness import hold_server_lock
from thalweg.network.flower.node_keys import NodeKeys, compute_key_digest
from thalweg.network.flower.processes import GuardedProcess
from thalweg.network.flower.server_processes import MAX_RESTARTS, ServerProcesses, ServerSettings
from thalweg.network.flower.timing import RestartBackoff
from thalweg.network.flower.trust import ServerTrust

QUIET = "import time; time.sleep(600)"


def code(text: str) -> list[str]:
    return [sys.executable, "-c", text]


class FakeServerProcesses(ServerProcesses):
    """Child processes that sleep and a SuperLink that accepts each command."""

    link, executor = QUIET, QUIET

    def __init__(self, folder: Path, trust: ServerTrust | None = None) -> None:
        (folder / "run").mkdir()
        super().__init__(
            ServerSettings("127.0.0.1", 1, folder / "state", trust), folder / "app", folder / "run"
        )
        self._backoffs = {name: RestartBackoff(initial_s=0.0) for name in self._backoffs}
        self.commands: list[list[str]] = []
        self.answers: dict[str, Any] = {"success": True, "run-id": "7"}

    def _start_superlink(self) -> None:
        self._start_child("SuperLink", code(self.link))

    def _start_superexec(self) -> None:
        self._start_child("SuperExec", code(self.executor))

    def _command(self, *commands: list[str]) -> list[dict[str, Any]]:
        self.commands += commands
        return [self.answers for _ in commands]

    def start_fakes(self) -> None:
        self._home.mkdir(parents=True)
        self._start_superlink()
        self._start_superexec()
        self._submit()

    def await_death(self, name: str) -> None:
        self._children[name]._guard.wait(60)


def test_dead_superlink_is_restarted_and_the_app_is_not_resubmitted(tmp_path: Path) -> None:
    host = FakeServerProcesses(tmp_path)
    try:
        host.start_fakes()
        assert host.supervise() == []
        host.link = "exit(7)"
        host._start_superlink()
        host.await_death("SuperLink")
        host.link = QUIET
        assert host.supervise() == ["SuperLink ended; it is restarted, and the run continues."]
        assert host.supervise() == []
        assert len(host.commands) == 1
    finally:
        host.close()


def test_dead_server_app_is_resubmitted(tmp_path: Path) -> None:
    host = FakeServerProcesses(tmp_path)
    try:
        host.start_fakes()
        assert host.supervise() == [], "it has not started yet"
        with hold_server_lock(tmp_path / "run"):
            assert host.supervise() == []
        assert host.supervise() == ["ServerApp ended; it is restarted, and the run continues."]
        assert [words[:2] for words in host.commands[1:]] == [
            ["stop", "7"],  # otherwise nodes wait for its messages
            ["run", str(tmp_path / "app")],
        ]
        (tmp_path / "run/summary.json").write_text("{}")
        host._submitted_at = None
        assert host.supervise() == [], "the run has finished"
    finally:
        host.close()


def test_failure_of_the_run_is_raised_with_its_reason(tmp_path: Path) -> None:
    host = FakeServerProcesses(tmp_path)
    try:
        host.start_fakes()
        (tmp_path / "run/failure.txt").write_text("a loss is not finite.\n")
        with pytest.raises(RunError, match="a loss is not finite"):
            host.supervise()
    finally:
        host.close()


def test_repeated_deaths_raise_an_error_unless_rounds_are_completed(tmp_path: Path) -> None:
    host = FakeServerProcesses(tmp_path)
    host.executor = "raise SystemExit('no room left')"
    try:
        host.start_fakes()
        for _ in range(MAX_RESTARTS + 3):
            host.await_death("SuperExec")
            assert len(host.supervise()) == 1
            host.reset_backoff()
        for _ in range(MAX_RESTARTS):
            host.await_death("SuperExec")
            host.supervise()
        host.await_death("SuperExec")
        with pytest.raises(
            RunError, match=r"ended 7 times without a completed round(.|\n)*no room left"
        ):
            host.supervise()
    finally:
        host.close()


def make_trust(folder: Path) -> ServerTrust:
    (folder / "nodes").mkdir()
    paths = (folder / name for name in ("ca.crt", "server.crt", "server.key"))
    return ServerTrust(folder, *paths)


def write_key(folder: Path, name: str, content: str) -> str:
    """Write a public key; return its digest."""
    file = folder / "nodes" / f"{name}.pub"
    file.write_text(f"ecdsa-sha2-nistp384 {content} a comment\n")
    return compute_key_digest(file)


def test_node_keys_are_registered_once(tmp_path: Path) -> None:
    make_certs(tmp_path / "keys", [], 4)
    files = [tmp_path / f"keys/nodes/{number}/node.pub" for number in range(4)]
    host = FakeServerProcesses(tmp_path, make_trust(tmp_path))
    host.settings.state.mkdir()
    host.answers = {"success": True, "node-id": 70}
    shutil.copy(files[0], tmp_path / "nodes/0.pub")
    assert host.register() == ["0"]
    assert host.register() == []
    shutil.copy(files[1], tmp_path / "nodes/1.pub")
    host.answers = {"success": False, "error-message": "Public key already in use."}
    with pytest.raises(RunError, match=r"superlink\.db does not have its node"):
        host.register()
    public = form.load_ssh_public_key(files[1].read_bytes()).public_bytes(
        form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo
    )
    with closing(sqlite3.connect(tmp_path / "state/superlink.db")) as db, db:
        db.execute("CREATE TABLE node (node_id INTEGER, public_key BLOB)")
        db.execute("INSERT INTO node VALUES (-1, ?)", (public,))
    assert host.register() == ["1"], "it was registered before a restart"
    keys = NodeKeys(tmp_path / "state/node_keys.json")
    assert [keys.find_digest(node) for node in (70, 2**64 - 1)] == [
        compute_key_digest(files[number]) for number in (0, 1)
    ]
    shutil.copy(files[3], tmp_path / "nodes/3.pub")
    host.answers = {"success": False, "error-message": "not a key"}
    with pytest.raises(RunError, match=r"does not accept the key .*3\.pub: not a key"):
        host.register()
    (tmp_path / "nodes/3.pub").write_text("nothing")
    with pytest.raises(RunError, match=r"3\.pub must be a public key in OpenSSH format"):
        host.register()


def test_key_is_revoked_by_deleting_its_file(tmp_path: Path) -> None:
    host = FakeServerProcesses(tmp_path, make_trust(tmp_path))
    host.settings.state.mkdir()
    digests = []
    for node, content in ((71, "AAAA"), (72, "BBBB")):
        digests.append(write_key(tmp_path, str(node), content))
        host.answers = {"success": True, "node-id": node}
        host.register()
    assert host.revoke() == []
    keys = NodeKeys(tmp_path / "state/node_keys.json")
    assert [keys.find_digest(node) for node in (71, 72, 73)] == [*digests, ""]
    (tmp_path / "nodes/72.pub").unlink()
    assert host.revoke() == [digests[1]]
    assert host.commands[-1][:3] == ["supernode", "unregister", "72"]
    assert host.revoke() == []
    keys = NodeKeys(tmp_path / "state/node_keys.json")
    assert [keys.find_digest(node) for node in (71, 72)] == [digests[0], ""]
    write_key(tmp_path, "again", "BBBB")
    with pytest.raises(RunError, match=r"again\.pub was revoked.*make a new key"):
        host.register()


def test_json_objects_are_read_from_mixed_output() -> None:
    text = 'Using ...\n{"success": true,\n "run-id": "7"}\n{"success": false}\n'
    assert server_processes.json_objects(text) == [
        {"success": True, "run-id": "7"},
        {"success": False},
    ]
    assert server_processes.json_objects("{ no json") == []


def test_last_lines_of_a_process_have_no_colour_codes(tmp_path: Path) -> None:
    child = GuardedProcess(
        "x", code(r"print('\x1b[91mERROR\x1b[0m: no')"), tmp_path / "log", os.environ
    )
    child._guard.wait(60)
    assert child.last_lines() == "  | ERROR: no"
    child.stop()
