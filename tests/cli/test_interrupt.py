import signal
import subprocess
import sys
import time


def test_ctrl_c_leaves_a_run_that_can_be_resumed(tmp_path):
    words = [sys.executable, "-m", "thalweg", "run", "fedavg", "--on", "digits-full"]
    running = subprocess.Popen(
        [*words, "--rounds", "100000", "--out", str(tmp_path / "r")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "r/checkpoint/server.safetensors").exists():
        assert running.poll() is None
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert f"continue with: thalweg run {tmp_path / 'r'} --resume" in said
    assert "Traceback" not in said
