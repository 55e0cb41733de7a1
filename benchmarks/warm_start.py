"""Cost of warm start: wall time compared with the same session without it, and stored bytes.

    python benchmarks/warm_start.py [--quick] [--stored 50] [--rounds 50] [--hidden 1000 925]
    [--repeats 3]

Runs a session of T rounds (10 clients with 5 steps of 64 samples, a checkpoint after every round)
with 50 stored past sessions of a model with a million parameters, and the same session without warm
start; the rounds of the two alternate. Limits: the ratio of the times is at most (T + V)/T + 2 %
with V probe rounds, and the stored bytes, in memory and on disk, are at most W + 2W(S - P): one
model of W bytes, and two for each session after the pilot.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from thalweg.core.types import Floats32
from thalweg.core.vectors import freeze
from thalweg.data import Dataset
from thalweg.engine.builders import make_federation
from thalweg.engine.plan import Plan, make_plan
from thalweg.engine.run_folder import RunFolder
from thalweg.federation import new_server, run_server_round
from thalweg.nets import Net
from thalweg.sessions import WarmStart
from thalweg.sessions.warm_start import WarmStartState
from thalweg.streams import Timetable

CLIENTS = 10


def make_session_plan(hidden: list[int], rounds: int) -> Plan:
    overrides = [
        f"net.hidden={hidden}",
        f"world.num_clients={CLIENTS}",
        *("world.availability=1", "world.availability_spread=0", "capacity=64", "ticks=1"),
        *("local.passes=none", "local.steps=5", "local.batch_size=64"),
        "sessions=alternating",  # `Session` replaces their timetable by that of `make_timetable`
    ]
    return make_plan("warmstart", "digits-full", rounds=1 + rounds, overrides=overrides)


def make_timetable(rounds: int) -> Timetable:
    """Return a session of one client and one round as a warm-up, then the measured session."""
    clients = np.concatenate([[0], np.arange(CLIENTS)])
    first = np.concatenate([[0], np.ones(CLIENTS, dtype=np.int64)])
    after = np.concatenate([[1], np.full(CLIENTS, 1 + rounds)])
    return Timetable(CLIENTS, 1 + rounds, clients, first, after)


def make_archive(
    session_start: WarmStart, model: Floats32, net: Net, stored: int
) -> WarmStartState:
    """Return the state at the start of a session with `stored` sessions since the pilot."""
    rng = np.random.default_rng(0)

    def vectors(number: int) -> list[Floats32]:
        return [freeze(rng.standard_normal(len(model), dtype=np.float32)) for _ in range(number)]

    return session_start.init(model, net.param_slices)._replace(
        sessions=session_start.pilot_sessions + stored,
        pilot=freeze(model),
        models=vectors(stored - 1),  # the last one is added when the next session starts
        numbers=np.arange(stored - 1) + session_start.pilot_sessions,
        fingerprints=vectors(stored),
    )


class Session:
    """Run a session with a checkpoint after each round, and measure its time."""

    def __init__(self, plan: Plan, data: Dataset, net: Net, stored: int, out: Path) -> None:
        self.plan, self.seconds = plan, 0.0
        recipe, session_start = plan.recipe, plan.recipe.session_start
        self.federation = make_federation(plan, data, net, "auto")
        self.federation.client_pool.timetable = make_timetable(plan.scenario.rounds - 1)
        self.folder = RunFolder(out)
        self.folder.open(plan, command="", resume=False)
        start = net.init(np.random.default_rng(1))
        self.server = new_server(recipe, start, CLIENTS, net.param_slices)
        self._run_round()
        if isinstance(session_start, WarmStart):
            archive = make_archive(session_start, start, net, stored)
            self.server = self.server._replace(session_start=archive)
        self._save()

    def advance(self) -> None:
        began = time.perf_counter()
        self._run_round()
        self._save()
        self.seconds += time.perf_counter() - began

    def close(self) -> None:
        self.federation.close()
        self.folder.close()

    def _run_round(self) -> None:
        plan = self.plan
        self.server, _ = run_server_round(self.server, self.federation, plan.recipe, plan.seed)

    def _save(self) -> None:
        clients = self.federation.client_pool.states
        self.folder.commit(self.server.rnd, [], self.server._asdict(), clients, set(clients))


def time_pair(
    cold: Plan, warm: Plan, data: Dataset, net: Net, stored: int, scratch: Path
) -> tuple[float, float]:
    """Return the seconds of the session without and with warm start.

    The rounds alternate, so that both are slowed down if the machine is.
    """
    sessions = [
        Session(plan, data, net, stored, scratch / name)
        for plan, name in ((cold, "cold"), (warm, "warm"))
    ]
    os.sync()  # earlier writes must not be flushed while sessions are timed
    try:
        for rnd in range(1, warm.scenario.rounds):
            for session in sessions if rnd % 2 else sessions[::-1]:
                session.advance()
        return sessions[0].seconds, sessions[1].seconds
    finally:
        for session in sessions:
            session.close()


def session_start_ms(session_start: WarmStart, net: Net, stored: int, repeats: int) -> float:
    """Return the milliseconds of comparing and blending, without probe rounds."""
    model = net.init(np.random.default_rng(1))
    state, times = make_archive(session_start, model, net, stored), []
    moved = model + np.random.default_rng(2).standard_normal(len(model), dtype=np.float32)
    for _ in range(repeats):
        began = time.perf_counter()
        session_start.choose_start(state, model, lambda model, lr_scale=1.0: moved)
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def stored_bytes(out: Path) -> tuple[int, int, int]:
    """Return the bytes in memory, on disk, and in the file that is written every round."""
    server, _ = RunFolder(out).read_checkpoint()
    state = server["session_start"]  # a NamedTuple is read as a dict
    vectors = [state["pilot"], *state["models"], *state["fingerprints"]]
    blobs = (out / "checkpoint" / "blobs").glob("*")
    every_round = max(file.stat().st_size for file in (out / "checkpoint").glob("server-*"))
    return sum(each.nbytes for each in vectors), sum(b.stat().st_size for b in blobs), every_round


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small net, few sessions")
    parser.add_argument("--stored", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--hidden", type=int, nargs="+", default=None)
    parser.add_argument("--repeats", type=int, default=None)
    args = parser.parse_args()
    small = args.quick
    stored, rounds = args.stored or (5 if small else 50), args.rounds or (4 if small else 50)
    hidden, repeats = (
        args.hidden or ([256] if small else [1000, 925]),
        args.repeats or (1 if small else 3),
    )
    warm = make_session_plan(hidden, rounds)
    cold = replace(warm, recipe=make_plan("fedavg", "digits-full").recipe)
    session_start = warm.recipe.session_start
    assert isinstance(session_start, WarmStart)
    data = warm.scenario.data.load(None, warm.seed)
    net = warm.scenario.net.build(data.input_shape, data.num_classes)
    V, W = session_start.probe_rounds, 4 * net.num_params
    print(f"{net.num_params} parameters, {stored} stored sessions, T = {rounds}, V = {V}")
    ratios = []
    with tempfile.TemporaryDirectory() as scratch:
        for turn in range(repeats):
            out = Path(scratch) / str(turn)
            without, with_start = time_pair(cold, warm, data, net, stored, out)
            ratios.append(with_start / without)
            print(f"session  {without:8.2f} s without, {with_start:8.2f} s with: {ratios[-1]:.4f}")
        in_memory, on_disk, every_round = stored_bytes(out / "warm")
    limit = (rounds + V) / rounds + 0.02
    allowed = W + 2 * W * (stored + 1)  # including the session that has just ended
    print(f"wall time      {statistics.median(ratios):.4f}   (limit {limit:.4f})")
    start_ms = session_start_ms(session_start, net, stored, 5)
    print(f"session start  {start_ms:.0f} ms without probe rounds")
    print(f"in memory      {in_memory / 1e6:.2f} MB   (limit {allowed / 1e6:.2f} MB)")
    print(f"on disk        {on_disk / 1e6:.2f} MB   (limit {allowed / 1e6:.2f} MB)")
    print(f"every round    {every_round / 1e6:.2f} MB   (a model has {W / 1e6:.2f} MB)")


if __name__ == "__main__":
    main()
