from __future__ import annotations

import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from thalweg.core.errors import RunError
from thalweg.network.edge.database import FORMAT_VERSION
from thalweg.network.edge.store import Membership, Store, write_facts

MEMBER = Membership("run-a", 3, "seed = 7\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "states" / "mine"


def open_error(folder: Path) -> str:
    with pytest.raises(RunError) as caught:
        Store.open(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


def test_new_store_is_empty_and_private_to_its_owner(folder: Path) -> None:
    store = Store.open(folder)
    assert (store.read_membership(), store.state(), store.find_response("abc")) == (
        None,
        None,
        None,
    )
    assert len(bytes.fromhex(store.identity)) == 16
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    store.close()


def test_store_contents_survive_reopening(folder: Path) -> None:
    store = Store.open(folder)
    identity = store.identity
    store.join(MEMBER)
    store.commit(b"remembered", "abc", b"answer", rnd=4)
    store.close()

    again = Store.open(folder)
    assert again.identity == identity
    assert again.read_membership() == MEMBER
    assert (again.state(), again.find_response("abc")) == (b"remembered", b"answer")
    again.close()


@pytest.mark.parametrize("change", ["value = 'seed = 8'", "name = 'plam'", "checksum = 1"])
def test_changed_values_and_names_are_detected(folder: Path, change: str) -> None:
    store = Store.open(folder)
    store.join(MEMBER)
    store.close()
    with closing(sqlite3.connect(folder / "state.db", isolation_level=None)) as db:
        db.execute(f"UPDATE facts SET {change} WHERE name = 'plan'")
    assert "a stored value has changed" in open_error(folder)


def test_two_stores_have_different_identities(tmp_path: Path) -> None:
    one, two = Store.open(tmp_path / "one"), Store.open(tmp_path / "two")
    assert one.identity != two.identity
    one.close(), two.close()


def test_only_responses_of_the_last_rounds_are_kept(folder: Path) -> None:
    store = Store.open(folder)
    for rnd in range(5):
        store.commit(b"state", f"request of {rnd}", f"response {rnd}".encode(), rnd=rnd)
    kept = [rnd for rnd in range(5) if store.find_response(f"request of {rnd}") is not None]
    assert kept == [2, 3, 4]
    store.commit(b"without an errand")
    assert store.find_response("request of 2") == b"response 2"
    store.close()


def read_files(folder: Path) -> bytes:
    """All bytes of a folder: tables, deleted content in them, and the write-ahead log."""
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir()))


@pytest.mark.parametrize("repeat", [1, 20, 2000])  # in a cell, in a page, in several pages
@pytest.mark.parametrize("is_reopened", [False, True])
def test_deleted_content_is_overwritten(folder: Path, repeat: int, is_reopened: bool) -> None:
    """A seized folder has no responses of past rounds and no replaced states."""

    def commit(store: Store, rnd: int) -> None:
        state, response = f"state-{rnd:02}".encode(), f"response-{rnd:02}".encode()
        facts = {"round": f"fact-{rnd:02}" * repeat}
        store.commit(
            state * repeat,
            f"digest-{rnd:02}",
            response * repeat,
            rnd=rnd,
            extra_write=lambda db: write_facts(db, facts),
        )

    store = Store.open(folder)
    for rnd in range(12):
        commit(store, rnd)
    before = read_files(folder)
    assert b"state-03" in before, "the log contains replaced content"
    if is_reopened:
        store.close()
        store = Store.open(folder)
    else:
        store.erase_deleted()
    content = read_files(folder)
    kept = {"state": {11}, "response": {9, 10, 11}, "digest": {9, 10, 11}, "fact": {11}}
    for name, rounds in kept.items():
        found = {rnd for rnd in range(12) if f"{name}-{rnd:02}".encode() in content}
        assert found == rounds, name
    store.close()


def test_state_folder_belongs_to_one_run_and_client(folder: Path) -> None:
    store = Store.open(folder)
    store.join(MEMBER)
    store.join(MEMBER)  # joining again with the same membership is accepted
    with pytest.raises(
        RunError, match=r"client 3 of run run-a, but the server has client 3 of run b"
    ):
        store.join(Membership("b", 3, ""))
    with pytest.raises(RunError, match=r"client 3 of run run-a, but .* client 5 of run run-a"):
        store.join(Membership("run-a", 5, ""))
    assert store.read_membership() == MEMBER
    store.close()


def test_failed_commit_is_rolled_back(folder: Path) -> None:
    store = Store.open(folder)
    store.commit(b"before")

    def fail(db: sqlite3.Connection) -> None:
        raise KeyError("on the way")

    with pytest.raises(KeyError):
        store.commit(b"after", "abc", b"answer", rnd=0, extra_write=fail)
    assert (store.state(), store.find_response("abc")) == (b"before", None)
    store.close()


def test_full_disk_gives_one_line_error_and_keeps_the_previous_state(folder: Path) -> None:
    store = Store.open(folder)
    store.commit(b"before")
    with store.read_transaction() as db:
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(RunError, match="the disk is full") as caught:
        store.commit(b"x" * 100_000, "abc", b"answer", rnd=0)
    assert "\n" not in str(caught.value)
    assert (store.state(), store.find_response("abc")) == (b"before", None)
    store.commit(b"small")  # smaller commits still work
    assert store.state() == b"small"
    store.close()


def test_uncreatable_state_folder_gives_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert "cannot write to the state folder" in open_error(tmp_path / "file" / "state")


def test_store_waits_for_a_process_that_closes_it(folder: Path) -> None:
    store = Store.open(folder)
    threading.Timer(0.3, store.close).start()
    second = Store.open(folder, timeout_s=60)
    assert second.identity == store.identity
    second.close()


def test_state_folder_is_locked_to_one_process(folder: Path) -> None:
    store = Store.open(folder)
    assert "another process uses the state folder" in open_error(folder)
    code = (
        "from pathlib import Path; from thalweg.network.edge.store import Store; "
        f"Store.open(Path({str(folder)!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "another process uses the state folder" in done.stderr
    store.close()
    Store.open(folder).close()


@pytest.mark.parametrize("where", ["header", "tables", "state"])
def test_damaged_store_is_rejected(folder: Path, where: str) -> None:
    store = Store.open(folder)
    for rnd in range(20):
        store.commit(b"state" * 500, f"request {rnd}", b"reply" * 500, rnd=0)
    store.close()
    file = folder / "state.db"
    content = bytearray(file.read_bytes())
    start = {"header": 0, "tables": 100, "state": content.rindex(b"statestate")}[where]
    content[start : start + 8] = b"\xff" * 8
    file.write_bytes(content)
    assert "damaged" in open_error(folder)


@pytest.mark.parametrize("version", [FORMAT_VERSION - 1, FORMAT_VERSION + 1])
def test_other_store_format_is_rejected(folder: Path, version: int) -> None:
    Store.open(folder).close()
    with sqlite3.connect(folder / "state.db") as db:
        db.execute(f"PRAGMA user_version = {version}")
    db.close()
    assert f"format {version}, this version reads format {FORMAT_VERSION}" in open_error(folder)


def test_database_of_another_program_is_rejected(folder: Path) -> None:
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / "state.db") as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    assert "another program" in open_error(folder)


def test_empty_database_file_after_a_kill_is_initialised(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "state.db").touch()
    store = Store.open(folder)
    assert len(store.identity) == 32
    store.close()


WRITER = """
import sys
from pathlib import Path
from thalweg.network.edge.store import Store
store = Store.open(Path(sys.argv[1]))
number = int(store.state() or 0)
while True:
    number += 1
    store.commit(str(number).encode(), f"errand {number}", str(number).encode(), rnd=number)
    print(number, flush=True)
"""


def test_killed_process_has_stored_all_confirmed_commits(folder: Path) -> None:
    waits = random.Random(0)
    said = 0
    for _ in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        for _ in range(waits.randrange(1, 30)):
            said = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        said = max([said, *map(int, writer.stdout.read().split())])
        writer.wait()
        writer.stdout.close()
        store = Store.open(folder)
        state = int(store.state() or 0)
        assert said <= state <= said + 1  # the last commit may be stored but not yet printed
        assert store.find_response(f"errand {state}") == str(state).encode()
        assert store.find_response(f"errand {state + 1}") is None
        store.close()
