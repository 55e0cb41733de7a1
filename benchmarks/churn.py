"""Memory, checkpoint size and time of a long run with warm start in which clients join and leave.

    python benchmarks/churn.py [--clients 1000] [--rounds 2000] [--cohort 20] [--kills 20]
    python benchmarks/churn.py --history none               # store every session: it grows
    python benchmarks/churn.py --session-start previous     # without warm start

A session ends when a fifth of the members have changed. Warm start runs a probe round at the start
of each session and stores the models and fingerprints of the last 20 sessions.

First the run is made without interruption; after each tenth of the rounds a line shows the memory
of the process, the size of the checkpoint and the milliseconds per round. Then the same run is
killed at random times and resumed; metrics and model must be bit-identical. Limit: memory and
checkpoint at the end are at most 5 % larger than in the second line, when nearly every client has
been a member once. The file of the metrics is not included, because it has one line per round.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import time
from pathlib import Path

from thalweg.engine.loop import Progress, run_plan
from thalweg.engine.plan import Plan, make_plan


def resident_mb() -> float:
    """Return the resident memory of this process (Linux)."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line) / 1024


def checkpoint_mb(folder: Path) -> float:
    files = (folder / "checkpoint").rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


def make_churn_plan(
    clients: int, rounds: int, cohort: int, session_start: str = "warm-start", history: str = "20"
) -> Plan:
    stored = [f"session_start.history={history}"] if session_start == "warm-start" else []
    return make_plan(
        "fedavg",
        "digits-partial",
        rounds=rounds,
        overrides=[
            f"world.num_clients={clients}",
            "world.availability=1.0",
            "world.availability_spread=0",
            "sessions=random-churn",
            "sessions.tolerance=0.2",
            f"session_start={session_start}",
            *stored,
            "selection=uniform",
            f"selection.fraction={2 * cohort / clients}",  # half of them are members
            "ticks=1",
            "capacity=20",
            "local.passes=1",
            f"evaluate_every={rounds}",
        ],
    )


def run_uninterrupted(plan: Plan, folder: Path) -> list[tuple[float, float]]:
    """Run a plan; return memory and checkpoint size after each tenth of the rounds.

    Prints the number of sessions and probe rounds at the end.
    """
    found: list[tuple[float, float]] = []
    every = max(plan.scenario.rounds // 10, 1)
    began = [time.perf_counter()]

    def print_line(progress: Progress) -> None:
        if progress.rounds_done % every == 0:
            each = 1000 * (time.perf_counter() - began[0]) / every
            began[0] = time.perf_counter()
            found.append((resident_mb(), checkpoint_mb(folder)))
            memory, checkpoint = found[-1]
            print(f"round {progress.rounds_done:>6}   {memory:8.1f} MB in memory", end="")
            print(f"   {checkpoint:7.3f} MB of checkpoint   {each:7.1f} ms per round", flush=True)

    metrics = run_plan(plan, out=folder, workers=1, watch=print_line).metrics
    sessions = {row["session"] for row in metrics if "session" in row}
    probe_rounds = sum(row.get("probe_rounds", 0) for row in metrics)
    print(f"{len(sessions)} sessions, {probe_rounds} probe rounds", flush=True)
    return found


def run_with_kills(plan: Plan, folder: Path, kills: int, seconds: float) -> int:
    """Run a plan in processes that are killed at random times; return the number of kills."""
    chance, done = random.Random(0), 0
    while True:
        child = os.fork()
        if child == 0:
            run_plan(plan, out=folder, workers=1, resume=True)
            os._exit(0)
        wait = chance.uniform(0, 2 * seconds / (kills + 1)) if done < kills else float("inf")
        deadline = time.monotonic() + wait
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
            time.sleep(0.01)
        if ended != (0, 0):
            assert os.waitstatus_to_exitcode(ended[1]) == 0
            return done
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        done += 1


def read_results(folder: Path) -> tuple[list[dict[str, object]], bytes]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    rows = [{k: v for k, v in json.loads(line).items() if "seconds" not in k} for line in lines]
    return rows, (folder / "model.safetensors").read_bytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--cohort", type=int, default=20)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--session-start", choices=("warm-start", "previous"), default="warm-start")
    parser.add_argument("--history", default="20", help="sessions that warm start stores, or none")
    args = parser.parse_args()
    plan = make_churn_plan(args.clients, args.rounds, args.cohort, args.session_start, args.history)
    with tempfile.TemporaryDirectory() as scratch:
        whole, cut = Path(scratch) / "whole", Path(scratch) / "cut"
        began = time.perf_counter()
        child = os.fork()  # processes that are killed later must not inherit its threads
        if child == 0:
            found = run_uninterrupted(plan, whole)
            for what, then, now in zip(("memory", "checkpoint"), found[1], found[-1], strict=True):
                print(
                    f"{what:<11}{now / then - 1:+7.1%} since the second line   (limit +5 %)",
                    flush=True,
                )
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        kills = run_with_kills(plan, cut, args.kills, time.perf_counter() - began)
        same = read_results(whole) == read_results(cut)
        print(f"killed {kills} times: {'identical results' if same else 'DIFFERENT RESULTS'}")


if __name__ == "__main__":
    main()
