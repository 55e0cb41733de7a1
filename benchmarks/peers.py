"""Whole federated rounds compared with other frameworks: wall time, start-up and memory.

    python benchmarks/peers.py                      about six minutes, after installation
    python benchmarks/peers.py --quick              one short run of each side
    python benchmarks/peers.py --quick --no-install only the sides that are installed

Sides: a plain PyTorch loop with as many threads as cores, Flower's simulation with Ray and one core
per client, pfl with one process per core, and `thalweg.run`. Each side is a program of its own
(`peers_NAME.py`). Flower and pfl are installed into virtual environments in ``build/peers``, which
use torch from the current environment. All sides train the same samples in the same number of steps
with the same optimizer, all clients in each round, and without evaluation in the rounds timed.

The averaged model after one round is compared with that of the plain loop (limit: a relative
difference of 1e-4 of the update) where mini-batches and initial model are the same. Thalweg draws
its own mini-batches and initial model; `speed.py` compares its updates.

Measure on an idle machine. Memory is PSS of all processes of a side after the last round (Linux).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from speed import CORES, MEAN, STD, WORKLOADS, Workload, flat

FOLDER = Path(__file__).parent
ENVIRONMENTS = FOLDER.parent / "build" / "peers"
LR, MOMENTUM, LARGEST_DIFFERENCE = 0.01, 0.9, 1e-4
FIRST_TIMED = 3  # the rounds before warm up caches
LONGEST_S = 300.0  # of one run of a side
NET_NAMES = {"A": "lenet5", "B": "mlp"}


@dataclass(frozen=True)
class Side:
    """A framework: its requirements, if it needs an environment of its own, and its targets."""

    name: str
    title: str
    requirement: str | None = None
    modules: str = ""
    launcher: tuple[str, ...] = ()
    targets: dict[str, float] = field(default_factory=dict)
    has_same_batches: bool = True


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={CORES}")
SIDES = [
    Side("plain", "plain PyTorch loop"),
    Side(
        "flower",
        "Flower 1.41, Ray",
        "flwr[simulation]==1.41.0",
        "flwr.simulation, ray",
        targets={"A": 10.0, "B": 10.0},
    ),
    Side(
        "pfl",
        f"pfl 0.6, {CORES} processes",
        "pfl[pytorch]==0.6.0",
        "pfl.algorithm.federated_averaging, pfl.model.pytorch",
        launcher=TORCHRUN,
        targets={"A": 4.5, "B": 2.2},
    ),
    Side("thalweg", "Thalweg", has_same_batches=False),
]


@dataclass
class Measurement:
    """One run of a side: seconds of the timed rounds, seconds to the end of round 1, memory."""

    rounds_s: list[float]
    start_s: float
    memory_mb: float
    difference: float | None


class SideFailed(Exception):
    """A side ended before its last round."""


def find_python(side: Side, may_install: bool) -> Path:
    """Return the interpreter of a side; install the side if it is missing."""
    if side.requirement is None:
        return Path(sys.executable)
    folder = ENVIRONMENTS / side.name
    python = folder / "bin" / "python"
    if can_import(python, side.modules):
        return python
    if not may_install:
        raise SideFailed(f"not installed: {folder} is missing or incomplete (--no-install)")
    print(f"installing {side.requirement} into {folder}", flush=True)
    call("-m", "venv", str(folder), python=Path(sys.executable))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own_packages = folder / "lib" / version / "site-packages"
    # Packages of this environment are found too, so that torch is not installed twice.
    (own_packages / "current.pth").write_text(sysconfig.get_path("purelib") + "\n")
    call("-m", "pip", "install", "--quiet", side.requirement, python=python)
    if not can_import(python, side.modules):
        raise SideFailed(f"not installed: {side.modules} cannot be imported in {folder}")
    return python


def can_import(python: Path, modules: str) -> bool:
    if not python.exists():
        return False
    words = [str(python), "-c", f"import {modules}"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def call(*words: str, python: Path) -> None:
    done = subprocess.run([str(python), *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise SideFailed(f"not installed: {reason}")


def write_work(folder: Path, work: Workload, rounds: int) -> np.ndarray:
    """Write data, model and settings of a workload; return the parameters of the model."""
    rng = np.random.default_rng(0)
    channels, height, width = work.input_shape
    shape = (work.clients, work.steps * work.batch, height, width, channels)
    pixels = rng.integers(0, 256, shape, dtype=np.uint8)
    floats = (np.moveaxis(pixels, 4, 2).astype(np.float32) / 255 - MEAN) / STD
    np.save(folder / "pixels.npy", pixels)
    np.save(folder / "x.npy", np.ascontiguousarray(floats, dtype=np.float32))
    np.save(folder / "y.npy", rng.integers(0, work.num_classes, shape[:2]))
    torch.manual_seed(0)
    model = work.module()
    torch.save(model, folder / "model.pt")
    settings = {
        "net": NET_NAMES[work.name],
        "clients": work.clients,
        "batch": work.batch,
        "steps": work.steps,
        "rounds": rounds,
        "lr": LR,
        "momentum": MOMENTUM,
        "cores": CORES,
    }
    (folder / "work.json").write_text(json.dumps(settings))
    return flat(model).copy()


def measure(
    side: Side, python: Path, folder: Path, rounds: int, expected: np.ndarray | None
) -> Measurement:
    """Run a side once. `expected` (2, P) are the initial and the averaged model, if known."""
    for name in ("ends", "first.npy", "measured"):
        (folder / name).unlink(missing_ok=True)
    script = str(FOLDER / f"peers_{side.name}.py")
    log = folder / f"{side.name}.log"
    with log.open("w") as output:
        began = time.time()
        process = subprocess.Popen(
            [str(python), *side.launcher, script, str(folder)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=make_environment(folder),
        )
        try:
            ends = wait_for_rounds(process, folder / "ends", rounds, log)
            memory = measure_memory(process.pid)
            (folder / "measured").touch()
            process.wait(timeout=60)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(timeout=30)
    difference = None
    if expected is not None and side.has_same_batches:
        initial, averaged = expected
        error = np.linalg.norm(np.load(folder / "first.npy") - averaged)
        difference = float(error / np.linalg.norm(averaged - initial))
    lengths = list(np.diff(ends)[FIRST_TIMED - 2 :])
    return Measurement(lengths, ends[0] - began, memory, difference)


def make_environment(folder: Path) -> dict[str, str]:
    """Return the variables of a side: no telemetry, and threads as each side chooses them."""
    env = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    home = folder / "home"
    home.mkdir(exist_ok=True)
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    return env | quiet | {"FLWR_HOME": str(home), "PYTHONWARNINGS": "ignore"}


def wait_for_rounds(
    process: subprocess.Popen[bytes], file: Path, rounds: int, log: Path
) -> list[float]:
    """Wait until a side has written the ends of all rounds; return them."""
    until = time.time() + LONGEST_S
    while True:
        lines = file.read_text().splitlines() if file.exists() else []
        if len(lines) >= rounds:
            return [float(line) for line in lines]
        if process.poll() is not None or time.time() > until:
            last = (log.read_text().strip() or "no output").splitlines()[-1]
            raise SideFailed(f"failed after {len(lines)} of {rounds} rounds: {last}")
        time.sleep(0.2)


def measure_memory(root: int) -> float:
    """Return the PSS of a process and its descendants in MB; NaN where /proc is missing."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # the process has ended
    tree, total = [root], 0.0
    for pid in tree:
        tree += [child for child, parent in parents.items() if parent == pid]
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total / 1024 if parents else float("nan")


def measure_workload(
    work: Workload, pythons: dict[str, Path | str], rounds: int, repeats: int
) -> dict[str, list[Measurement] | str]:
    """Run all sides in turn; return their measurements, or why there are none."""
    found: dict[str, list[Measurement] | str] = {}
    with tempfile.TemporaryDirectory(prefix="peers") as scratch:
        folder = Path(scratch)
        initial, expected = write_work(folder, work, rounds), None
        for _ in range(repeats):
            for side in SIDES:
                python, earlier = pythons[side.name], found.get(side.name, [])
                if isinstance(python, str) or isinstance(earlier, str):
                    found[side.name] = python if isinstance(python, str) else earlier
                    continue
                try:
                    once = measure(side, python, folder, rounds, expected)
                except SideFailed as failure:
                    found[side.name] = str(failure)
                    continue
                if side.name == "plain":
                    expected = np.stack([initial, np.load(folder / "first.npy")])
                found[side.name] = [*earlier, once]
    return found


def report(work: Workload, found: dict[str, list[Measurement] | str]) -> bool:
    """Print a line per side; return whether an averaged model differs from the plain loop's."""
    print(f"\n{work.name}  {work.what}, {work.clients} x {work.steps} x {work.batch}")
    header = f"{'':24s} {'ms/round':>9s} {'range':>15s} {'ratio':>6s} {'target':>7s}"
    print(f"{header} {'start, s':>9s} {'PSS, MB':>8s} {'difference':>11s}")
    ours, differs = found.get("thalweg"), False
    for side in SIDES:
        several = found[side.name]
        if isinstance(several, str):
            print(f"{side.title:24s} {several}")
            continue
        middle = get_round_ms(several)
        medians = [statistics.median(once.rounds_s) * 1e3 for once in several]
        extent = f"{min(medians):.1f}-{max(medians):.1f}"
        ratio = f"{middle / get_round_ms(ours):.1f}" if isinstance(ours, list) else "-"
        target = f"{side.targets[work.name]:.1f}" if work.name in side.targets else "-"
        start = statistics.median(once.start_s for once in several)
        memory = statistics.median(once.memory_mb for once in several)
        errors = [once.difference for once in several if once.difference is not None]
        note = f"{max(errors):.1e}" if errors else "-"
        if errors and max(errors) > LARGEST_DIFFERENCE:
            note, differs = f"{note}  DIFFERENT MODEL: times do not count", True
        if not side.has_same_batches:
            note = "own mini-batches"
        numbers = f"{middle:9.1f} {extent:>15s} {ratio:>6s} {target:>7s} {start:9.1f} {memory:8.0f}"
        print(f"{side.title:24s} {numbers} {note:>11s}", flush=True)
    return differs


def get_round_ms(several: list[Measurement]) -> float:
    return statistics.median(statistics.median(once.rounds_s) for once in several) * 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one run of 4 rounds of each side")
    parser.add_argument("--no-install", action="store_true", help="skip sides that are missing")
    parser.add_argument("--only", default="AB", help="A, B or both")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each side")
    options = parser.parse_args()
    rounds, repeats = (4, 1) if options.quick else (12, options.repeats)
    pythons: dict[str, Path | str] = {}
    for side in SIDES:
        try:
            pythons[side.name] = find_python(side, not options.no_install)
        except SideFailed as failure:
            pythons[side.name] = str(failure)
    print(
        f"{CORES} cores, torch {torch.__version__}; medians of rounds {FIRST_TIMED} to {rounds} "
        f"and of {repeats} runs in turn; ratio: time / time of Thalweg"
    )
    differs = False
    for work in WORKLOADS:
        if work.name in NET_NAMES and work.name in options.only:
            differs |= report(work, measure_workload(work, pythons, rounds, repeats))
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
