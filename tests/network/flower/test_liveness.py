"""The lock file that shows whether a ServerApp is running."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from thalweg.core.errors import RunError
from thalweg.network.flower.liveness import hold_server_lock, is_server_running

HOLD_LOCK = """
import sys, time
from pathlib import Path
from thalweg.network.flower.liveness import hold_server_lock
with hold_server_lock(Path(sys.argv[1])):
    print("here", flush=True)
    time.sleep(600)
"""


def test_server_is_running_while_it_holds_the_lock(tmp_path: Path) -> None:
    assert not is_server_running(tmp_path)
    with hold_server_lock(tmp_path):
        assert is_server_running(tmp_path)
    assert not is_server_running(tmp_path)


def test_killed_server_is_not_running(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD_LOCK, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        assert is_server_running(tmp_path)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert not is_server_running(tmp_path)


def test_second_server_on_a_run_folder_is_rejected(tmp_path: Path) -> None:
    with (
        hold_server_lock(tmp_path),
        pytest.raises(RunError, match="another ServerApp"),
        hold_server_lock(tmp_path),
    ):
        pass
