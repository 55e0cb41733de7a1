"""Each benchmark runs at a small scale. The measurements are in `docs/results/speed.md`."""

import subprocess
import sys
from pathlib import Path

import pytest

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
FOLDER = Path(__file__).parents[2] / "benchmarks"
QUICK = {
    "bank.py": ("--quick",),
    "chance.py": ("--quick",),
    "churn.py": ("--clients", "40", "--rounds", "60", "--cohort", "5", "--kills", "1"),
    "dpcs.py": ("--clients", "200", "--repeats", "1"),
    "durability.py": ("--on", "digits-partial", "--rounds", "3"),
    "peers.py": ("--quick", "--no-install", "--only", "B"),
    "ray_nodes.py": ("--quick",),
    "rounding.py": ("--seeds", "1", "--rounds", "1"),
    "scale.py": ("--clients", "200", "--cohort", "10", "--rounds", "1"),
    "speed.py": ("--quick", "--only", "BC"),
    "warm_start.py": ("--quick", "--repeats", "1"),
}
OTHERS = {
    "flower.py": "starts Flower's programs, as tests/network/flower/test_real.py does",
    "objectives.py": "is a part of speed.py --objectives",
    "peers_flower.py": "is a part of peers.py",
    "peers_pfl.py": "is a part of peers.py",
    "peers_plain.py": "is a part of peers.py",
    "peers_thalweg.py": "is a part of peers.py",
    "peers_work.py": "is a part of peers.py",
}


def test_each_benchmark_is_run_or_listed_with_a_reason() -> None:
    assert {file.name for file in FOLDER.glob("*.py")} == {*QUICK, *OTHERS}


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_benchmark_runs_at_small_scale(name: str) -> None:
    if name == "scale.py" and not DEBIAN.is_dir():
        pytest.skip("needs the Debian package dataset-fashion-mnist (make test-deps)")
    if name == "ray_nodes.py":
        pytest.importorskip("ray", reason="the ray extra is not installed")
    words = [sys.executable, str(FOLDER / name), *QUICK[name]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert "Traceback" not in done.stderr, done.stderr[-2000:]
    assert done.returncode in (0, 1), "1: a target is missed, which small scales do"
    assert done.stdout.strip()
