"""Child processes: they end with their owner, and failures at startup are reported."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from thalweg.core.errors import ConfigError, RunError
from thalweg.network.flower.processes import (
    Follower,
    GuardedProcess,
    await_health,
    check_port,
    find_program,
    free_port,
    stop_all,
)

# A program with a child process that keeps running when its parent ends.
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""


def wait_for(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def child_of(code: str, log: Path) -> GuardedProcess:
    return GuardedProcess("a program", [sys.executable, "-c", code], log, dict(os.environ))


def test_stop_ends_a_process_and_its_children(tmp_path: Path) -> None:
    child = child_of(PARENT, tmp_path / "log")
    wait_for(lambda: child.output().strip().isdigit(), "it starts")
    grandchild = int(child.output())
    stop_all([child])
    assert child.code is not None
    wait_for(lambda: not is_alive(grandchild), "the grandchild ends too")


def test_children_of_a_killed_process_are_ended(tmp_path: Path) -> None:
    child = child_of("import os; print(os.getpid(), flush=True)\n" + PARENT, tmp_path / "log")
    wait_for(lambda: len(child.output().split()) == 2, "both start")
    parent, grandchild = map(int, child.output().split())
    os.kill(parent, signal.SIGKILL)
    wait_for(lambda: child.code == 128 + signal.SIGKILL, "its end is noticed")
    assert not is_alive(grandchild)
    child.stop()


def test_processes_end_when_their_owner_is_killed(tmp_path: Path) -> None:
    owner_code = (
        "import os, sys, time\nfrom pathlib import Path\n"
        "from thalweg.network.flower.processes import GuardedProcess\n"
        f"child = GuardedProcess('a', [sys.executable, '-c', {PARENT!r}], "
        f"Path({str(tmp_path / 'log')!r}), os.environ)\n"
        "time.sleep(600)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", owner_code])
    try:
        log = tmp_path / "log"
        wait_for(lambda: log.exists() and log.read_text().endswith("\n"), "the child starts")
        grandchild = int(log.read_text())
        assert is_alive(grandchild)
    finally:
        owner.kill()
        owner.wait()
    wait_for(lambda: not is_alive(grandchild), "all processes end")


def test_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    child = child_of(STUBBORN, tmp_path / "log")
    wait_for(lambda: "ready" in child.output(), "it starts")
    child.stop(timeout_s=60)
    assert child.code == 128 + signal.SIGKILL


def test_process_that_ends_before_it_is_ready_is_reported_with_its_output(
    tmp_path: Path,
) -> None:
    child = child_of("raise SystemExit('the disk is on fire')", tmp_path / "log")
    with pytest.raises(RunError, match=r"ended with code 1 before it was ready(.|\n)*on fire"):
        await_health(child, "127.0.0.1", free_port(), None, 60)
    child.stop()


def test_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(
            ConfigError, match=r"is not available .*choose another port with --port"
        ):
            check_port("127.0.0.1", port)
    check_port("127.0.0.1", free_port())


def test_missing_program_is_reported_with_the_install_command() -> None:
    with pytest.raises(ConfigError, match=r"pip install 'thalweg\[flower\]'"):
        find_program("flower-superlink", {"PATH": "/nowhere"})


def test_follower_returns_complete_lines_once(tmp_path: Path) -> None:
    file = tmp_path / "file"
    follower = Follower(file)
    assert follower.read_lines() == []
    file.write_text("one\ntw")
    assert follower.read_lines() == ["one"]
    with file.open("a") as more:
        more.write("o\nthree\n")
    assert follower.read_lines() == ["two", "three"]
    assert follower.read_lines() == []


def test_follower_reads_a_replaced_file_from_its_start(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("one\ntwo\n")
    follower = Follower(file)
    assert follower.read_lines() == ["one", "two"]
    (tmp_path / "new").write_text("one\n")
    os.replace(tmp_path / "new", file)
    assert follower.read_lines() == ["one"]


def test_follower_from_the_end_skips_existing_lines(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text('{"a": 1}\n')
    follower = Follower(file, from_end=True)
    with file.open("a") as more:
        more.write('noise\n{"a": 2}\n{broken\n')
    assert follower.read_objects() == [{"a": 2}]
