"""Ctrl-C during `thalweg run`."""

import signal
import subprocess
import sys
import time

# A test run in the background inherits "ignore Ctrl-C"; a user's terminal does not.
RUN_WITH_SIGINT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from thalweg.cli.main import main
main()
"""


def test_ctrl_c_prints_the_command_to_resume_the_run(tmp_path):
    words = ["run", "fedavg", "--on", "digits-full", "--rounds", "100000"]
    running = subprocess.Popen(
        [sys.executable, "-c", RUN_WITH_SIGINT, *words, "--out", str(tmp_path / "r")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not (tmp_path / "r/metrics.jsonl").exists():  # it appears with the first round
            assert running.poll() is None
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130
    assert f"continue with: thalweg run {tmp_path / 'r'} --resume" in errors
    assert "Traceback" not in errors
