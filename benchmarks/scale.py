"""Start-up, memory and time per round of 10,000 clients with memories of 500 (Fashion-MNIST).

    python benchmarks/scale.py [--clients 10000] [--cohort 100] [--rounds 3]

Prints one line per measurement. Limits: start-up under 10 s, resident memory under 1.5 GB (this
process and its workers), and a round without training (streams, memories, checkpoint) under 50 ms.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from thalweg.core.types import Job
from thalweg.engine.builders import make_client_pool
from thalweg.engine.loop import Progress, run_plan
from thalweg.engine.plan import Plan, make_plan
from thalweg.engine.run_folder import RunFolder


def resident_mb() -> float:
    """Return the resident memory of this process and its children (Linux)."""
    total, todo = 0, [os.getpid()]
    while todo:
        pid = todo.pop()
        status = Path(f"/proc/{pid}/status").read_text()
        total += next(int(line.split()[1]) for line in status.splitlines() if "VmRSS" in line)
        todo += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return total / 1024


def idle_round_ms(plan: Plan, cohort: int, rounds: int) -> float:
    """Return the median time of a round without training: streams, memories and checkpoints."""
    scenario = plan.scenario
    data = scenario.data.load(None, plan.seed)
    client_pool = make_client_pool(plan, data, num_params=1)
    times = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = RunFolder(Path(scratch))
        folder.open(plan, command="", resume=False)
        for rnd in range(rounds):
            started = time.perf_counter()
            present = client_pool.roster(rnd).present[:cohort]
            for job in map(Job, present.tolist()):
                client_round = client_pool.start_round([job], rnd)
                for _ in range(scenario.ticks):
                    client_round.observe()
                client_round.reports()
                client_pool.finish(client_round)
            server = {"rnd": rnd + 1, "bank": np.zeros(61_706, dtype=np.float32)}
            rows = [{"round": rnd + 1}]
            folder.commit(rnd + 1, rows, server, client_pool.states, client_pool.changed)
            client_pool.changed.clear()
            times.append(1000 * (time.perf_counter() - started))
        folder.close()
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--cohort", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()

    def plan_with(availability: float) -> Plan:
        sets = [f"world.num_clients={args.clients}", f"world.availability={availability}"]
        sets.append("world.availability_spread=0")
        return make_plan("sfedpo", "fashion-mnist-partial", rounds=args.rounds, overrides=sets)

    plan = plan_with(args.cohort / args.clients)
    began = time.perf_counter()
    first_round: list[float] = []
    peak = [0.0]

    def print_round(progress: Progress) -> None:
        if not first_round:
            first_round.append(time.perf_counter() - began - progress.row["seconds"])
        peak[0] = max(peak[0], resident_mb())
        print(f"round {progress.rounds_done}: {progress.row['cohort']} clients, ", end="")
        print(f"{progress.row['seconds']:.2f} s, {resident_mb():.0f} MB resident")

    run_plan(plan, watch=print_round)
    print(f"start-up          {first_round[0]:.2f} s   (limit 10 s)")
    print(f"resident memory   {peak[0]:.0f} MB   (limit 1500 MB)")
    idle = idle_round_ms(plan_with(1.0), args.cohort, 15)
    print(f"idle round        {idle:.1f} ms   (limit 50 ms)")


if __name__ == "__main__":
    main()
