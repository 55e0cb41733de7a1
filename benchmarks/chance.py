"""Models that `auto` opens by chance: labels never change, but are hard to predict.

    python benchmarks/chance.py

prints in how many stationary runs a model was opened, by the number of arriving samples and by the
level of the lower confidence limits of losses (`bank.loss_significance`).
"""

from __future__ import annotations

import argparse

import numpy as np

import thalweg
from thalweg.data import Dataset

ROUNDS = {4: 40, 20: 12}  # by the samples that arrive at a client in a round
LEVELS = (0.001, 0.01, 0.05, 1.0)
CLASSES, SEEDS = (2, 3, 6), range(4)


def count_opened(num_classes: int, seed: int, arrivals: int, level: float) -> int:
    """Return how many models auto opens on a table of noisy samples of ten clients."""
    rng = np.random.default_rng(seed)
    labels, centres = rng.integers(0, num_classes, 3000), rng.normal(size=(num_classes, 6))
    x = centres[labels] + 3 * rng.normal(size=(3000, 6))
    run = thalweg.run(
        "auto",
        Dataset.from_arrays(x, labels, client=rng.integers(0, 10, 3000)),
        model="linear",
        rounds=ROUNDS[arrivals],
        seed=seed,
        overrides=[f"world.arrivals={arrivals}", f"bank.loss_significance={level}"],
        workers=1,
    )
    decided = [each["what"] for row in run.metrics for each in row.get("decisions", ())]
    return decided.count("open-model")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two classes and one seed only")
    quick = parser.parse_args().quick
    cases = [(c, seed) for c in CLASSES for seed in SEEDS][: 1 if quick else None]
    for arrivals in ROUNDS:
        for level in LEVELS:
            opened = [count_opened(c, seed, arrivals, level) for c, seed in cases]
            runs = sum(number > 0 for number in opened)
            print(f"{arrivals} samples per round, level {level}: {runs} of {len(opened)} runs")


if __name__ == "__main__":
    main()
