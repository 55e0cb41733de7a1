"""How rounding changes the models of RMSprop with momentum: between engines, and from other starts.

    python benchmarks/rounding.py [--seeds 3] [--rounds 1 2 3 4]

Runs FedAvg on `digits-partial` and prints the largest difference between the parameters of two
models, as mean and standard deviation over the seeds: of the two engines; of two runs of the
reference engine, one of which starts from a model that is changed by 1e-7 of each parameter; and of
the two engines with eps=0.001.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats32
from thalweg.engine.loop import run_plan
from thalweg.engine.plan import make_plan

CHANGE = 1e-7  # relative, about the rounding error of a number in single precision
RMSPROP = ["optimizer=rmsprop", "local.momentum=0.9", "local.lr=0.001"]
EPS = "local.optimizer.eps=0.001"


def train(engine: str, seed: int, rounds: int, *more: str) -> Floats32:
    plan = make_plan(
        "fedavg",
        "digits-partial",
        seed=seed,
        rounds=rounds,
        engine=engine,
        overrides=[*RMSPROP, *more],
    )
    return run_plan(plan, workers=1).model


def write_changed_start(seed: int, folder: Path) -> Path:
    """Write the first model of the runs, with small changes, and return the file."""
    plan = make_plan("fedavg", "digits-partial", seed=seed, rounds=1)
    net = run_plan(plan, workers=1).net
    start, signs = net.init(rng_for(seed, Draw.NET)), np.random.default_rng(seed)
    changed = start * (1 + CHANGE * signs.choice([-1, 1], size=len(start)))
    tensors = net.saved_tensors(changed.astype(np.float32))
    file = folder / f"{seed}.safetensors"
    save_file({name: np.ascontiguousarray(each) for name, each in tensors.items()}, file)
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, nargs="+", default=[1, 2, 3, 4])
    options = parser.parse_args()
    print("rounds   engines             other start         engines, eps=0.001")
    with tempfile.TemporaryDirectory() as folder:
        starts = [write_changed_start(seed, Path(folder)) for seed in range(options.seeds)]
        for rounds in options.rounds:
            found = []
            for seed, start in enumerate(starts):
                slow = train("reference", seed, rounds)
                pairs = [
                    (train("fast", seed, rounds), slow),
                    (train("reference", seed, rounds, f"start_from={start}"), slow),
                    (train("fast", seed, rounds, EPS), train("reference", seed, rounds, EPS)),
                ]
                found.append([np.abs(ours - theirs).max() for ours, theirs in pairs])
            cells = zip(np.mean(found, axis=0), np.std(found, axis=0), strict=True)
            print(f"{rounds:6}  ", *(f"{mean:.1e} ± {spread:.1e} " for mean, spread in cells))


if __name__ == "__main__":
    main()
