"""Time of a round on Flower: `thalweg serve` and `join` compared with a plain Flower app.

    python benchmarks/flower.py [--nodes 4] [--rounds 10] [--steps 20] [--only ours|bare]
    python benchmarks/flower.py --nodes 20 --only ours

Both run FedAvg with the same net and the same number of nodes and steps, on 100 digits per node.
Ours is `thalweg serve` and one `thalweg join` per node, as users start them. The plain ("bare") app
is Flower's own FedAvg with a ClientApp in plain PyTorch, for which a SuperNode starts a process per
message; it is generated here. The time is measured from the end of the first round to the end of
the last. Limits: a ratio of at most 1, and with 20 nodes no late or lost response.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import run

import numpy as np

from thalweg.data import Digits
from thalweg.network.flower.processes import (
    GuardedProcess,
    await_health,
    find_program,
    free_port,
    make_environment,
    stop_all,
)

SAMPLES, BATCH, HIDDEN, LR, MOMENTUM = 100, 16, 64, 0.03, 0.9
LONGEST_S = 3600.0  # limit for all rounds together

PROJECT = """\
[project]
name = "bare"
version = "1.0.0"
description = "Plain FedAvg"
license = "Apache-2.0"
[tool.flwr.app]
publisher = "local"
[tool.flwr.app.components]
serverapp = "bare.server_app:app"
clientapp = "bare.client_app:app"
[tool.flwr.app.config]
rounds = {rounds}
nodes = {nodes}
steps = {steps}
ends = "{ends}"
"""
MODEL = f"""\
import torch
from torch import nn


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, {HIDDEN}), nn.ReLU(), nn.Linear({HIDDEN}, 10))
"""
SERVER = """\
import time

from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from bare.model import make

app = ServerApp()


@app.main()
def main(grid, context):
    rounds, nodes, ends = (context.run_config[name] for name in ("rounds", "nodes", "ends"))

    def note(rnd, arrays):
        if rnd:
            with open(ends, "a") as file:
                file.write(f"{time.time()}\\n")

    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
    strategy.start(grid, ArrayRecord(make().state_dict()), num_rounds=rounds, evaluate_fn=note)
"""
CLIENT = f"""\
import numpy as np
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.nn.functional import cross_entropy

from bare.model import make

app = ClientApp()


@app.train()
def train(message, context):
    torch.set_num_threads(1)
    data = np.load(context.node_config["data"])
    x, y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])
    model = make()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr={LR}, momentum={MOMENTUM})
    for _ in range(context.run_config["steps"]):
        rows = torch.randint(len(x), ({BATCH},))
        optimizer.zero_grad()
        loss = cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
    metrics = MetricRecord({{"loss": loss.item(), "num-examples": len(x)}})
    content = RecordDict({{"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}})
    return Message(content, reply_to=message)
"""


class Timing:
    """Seconds per round, seconds until the end of the first round, late and lost responses."""

    def __init__(self, began: float, ends: list[float], missed: int = 0) -> None:
        self.start_s, self.missed = ends[0] - began, missed
        self.round_s = (ends[-1] - ends[0]) / (len(ends) - 1)


def time_thalweg(folder: Path, nodes: int, rounds: int, steps: int) -> Timing:
    """Time `thalweg serve` and `thalweg join`; each client replays its part of the scenario."""
    sets = [f"world.num_clients={nodes}", "world.availability=1", "world.availability_spread=0"]
    sets += [f"capacity={SAMPLES}", "ticks=1", "local.passes=none", f"local.steps={steps}"]
    sets += [f"local.batch_size={BATCH}", f"local.lr={LR}", f"local.momentum={MOMENTUM}"]
    sets += [f"net.hidden=[{HIDDEN}]", f"evaluate_every={rounds}", "prequential=0"]
    server, began = f"127.0.0.1:{free_port()}", time.time()
    options = [word for each in sets for word in ("--set", each)]
    options += ["--rounds", str(rounds), "--min-clients", str(nodes), "--deadline", "300"]
    thalweg = (sys.executable, "-m", "thalweg")
    with start_programs(folder) as start:
        out = ("--port", server.split(":")[1], "--out", str(folder / "run"), "--json")
        start("serve", *thalweg, "serve", "fedavg", "--on", "digits-full", *options, *out)
        for node in range(nodes):
            state = ("--state", str(folder / f"state{node}"), "--client", str(node), "--json")
            start(f"join{node}", *thalweg, "join", server, "--data", "replay", *state)
        ends = wait_for_lines(folder / "run" / "metrics.jsonl", rounds)
    events = map(json.loads, (folder / "run" / "events.jsonl").read_text().splitlines())
    return Timing(began, ends, sum(event["event"] in ("late", "lost") for event in events))


def time_flower(folder: Path, nodes: int, rounds: int, steps: int) -> Timing:
    """Time a generated Flower app on samples of the same data set."""
    ends, app, port = folder / "ends", folder / "app", free_port()
    write_app(app, nodes=nodes, rounds=rounds, steps=steps, ends=ends)
    server, began = f"127.0.0.1:{port}", time.time()
    (folder / "home").mkdir()
    connection = f'[superlink.bare]\naddress = "{server}"\ninsecure = true\n'
    (folder / "home" / "config.toml").write_text(connection)
    env, rng, data = (
        make_environment(folder / "home"),
        np.random.default_rng(0),
        Digits().load(None, 0),
    )
    with start_programs(folder) as start:
        own = ("--insecure", "--host", "127.0.0.1", "--port")
        link = start("link", find_program("flower-superlink", env), *own, str(port))
        await_health(link, "127.0.0.1", port, None, 120)
        for node in range(nodes):
            rows, file = rng.choice(len(data.y), SAMPLES, replace=False), folder / f"{node}.npz"
            np.savez(file, x=data.x[rows].astype(np.float32) / 255, y=data.y[rows])
            config = ("--node-config", f'data="{file}"', "--superlink", server)
            words = (*own, str(free_port()), *config)
            start(f"node{node}", find_program("flower-supernode", env), *words)
        submit = [find_program("flwr", env), "run", str(app), "bare"]
        run(submit, env=env, check=True, timeout=300, capture_output=True)
        wait_for_lines(ends, rounds)
    return Timing(began, [float(line) for line in ends.read_text().splitlines()])


def write_app(folder: Path, **config: object) -> None:
    package = folder / "bare"
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT.format(**config))
    files = {"__init__": "", "model": MODEL, "server_app": SERVER, "client_app": CLIENT}
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)


@contextmanager
def start_programs(folder: Path) -> Iterator[Callable[..., GuardedProcess]]:
    """Yield a function that starts programs with logs in a folder; stop them at the end."""
    folder.mkdir(exist_ok=True)
    env, started = make_environment(folder / "home"), list[GuardedProcess]()

    def start(name: str, *command: str) -> GuardedProcess:
        started.append(GuardedProcess(name, command, folder / f"{name}.log", env))
        return started[-1]

    try:
        yield start
    finally:
        stop_all(started)


def wait_for_lines(file: Path, rounds: int) -> list[float]:
    """Wait until a file has a line per round; return the times at which they appeared."""
    ends: list[float] = []
    until = time.time() + LONGEST_S
    while len(ends) < rounds:
        if time.time() > until:
            raise SystemExit(f"{len(ends)} of {rounds} rounds after {LONGEST_S:.0f} s: {file}")
        lines = file.read_bytes().count(b"\n") if file.exists() else 0
        ends += [time.time()] * (lines - len(ends))
        time.sleep(0.02)
    return ends


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=10, help="at least 2")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", choices=("ours", "bare"))
    args = parser.parse_args()
    sides = {
        "ours": ("thalweg serve, join", time_thalweg),
        "bare": ("plain Flower app", time_flower),
    }
    found: dict[str, Timing] = {}
    print(f"{args.nodes} nodes, {args.rounds} rounds of {args.steps} steps", flush=True)
    print(f"{'':<22}{'s per round':>12}{'first after s':>15}{'late or lost':>14}")
    with tempfile.TemporaryDirectory(prefix="tw") as scratch:
        for name, (title, measure) in sides.items():
            if args.only in (None, name):
                timing = measure(Path(scratch) / name, args.nodes, args.rounds, args.steps)
                found[name] = timing
                missed = str(timing.missed) if name == "ours" else "-"
                row = f"{title:<22}{timing.round_s:12.2f}{timing.start_s:15.1f}{missed:>14}"
                print(row, flush=True)
    if len(found) == 2:
        ratio = found["ours"].round_s / found["bare"].round_s
        print(f"{'ratio':<22}{ratio:12.2f}   (limit 1)")


if __name__ == "__main__":
    main()
