import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from thalweg.core.errors import RunError
from thalweg.network.flower.liveness import hold_server_lock, is_server_running

AT_WORK = """
import sys, time
from pathlib import Path
from thalweg.network.flower.liveness import hold_server_lock
with hold_server_lock(Path(sys.argv[1])):
    print("here", flush=True)
    time.sleep(600)
"""


def test_a_server_app_is_seen_to_live_until_it_ends(tmp_path: Path) -> None:
    assert not is_server_running(tmp_path)
    with hold_server_lock(tmp_path):
        assert is_server_running(tmp_path)
    assert not is_server_running(tmp_path)


def test_one_that_is_killed_is_seen_to_be_dead(tmp_path: Path) -> None:
    command = [sys.executable, "-c", AT_WORK, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        assert is_server_running(tmp_path)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert not is_server_running(tmp_path)


def test_a_second_one_is_told_to_go(tmp_path: Path) -> None:
    with (
        hold_server_lock(tmp_path),
        pytest.raises(RunError, match="another ServerApp"),
        hold_server_lock(tmp_path),
    ):
        pass
