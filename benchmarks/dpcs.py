"""Sampling probabilities of DPCS for 10,000 and 100,000 clients: milliseconds, on one core.

    python benchmarks/dpcs.py [--clients 10000 100000] [--classes 10] [--repeats 5]

The label distributions of the clients are drawn from Dirichlet(0.1). Goals: all classes equally,
which can be attained; mainly a few classes, which is hard to attain, so that few clients have a
positive probability; and the distribution of the first client, which lies on the boundary. The last
column is with absolute differences (l1). Limits for squared differences and ten classes: 100 ms for
10,000 clients and 1 s for 100,000.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
from threadpoolctl import threadpool_limits  # comes with scikit-learn

from thalweg.core.types import Floats
from thalweg.theory import dpcs_probabilities


def goals(mixes: Floats, rng: np.random.Generator) -> dict[str, Floats]:
    num_classes = mixes.shape[1]
    return {
        "all classes equally": np.full(num_classes, 1 / num_classes),
        "a few classes": rng.dirichlet(np.full(num_classes, 0.3)),
        "the first client's": mixes[0],
    }


def median_ms(mixes: Floats, goal: Floats, repeats: int, **options: object) -> float:
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        dpcs_probabilities(mixes, goal, **options)  # type: ignore[arg-type]
        times.append(1000 * (time.perf_counter() - started))
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    dpcs_probabilities([[1, 0], [0, 1]], [0.5, 0.5], norm="l1")  # imports SciPy
    print(f"{'clients':>8}  {'goal':<20}{'drawn':>8}{'ridge':>9}{'no ridge':>10}{'l1':>8}   ms")
    with threadpool_limits(1):
        for num_clients in args.clients:
            rng = np.random.default_rng(0)
            mixes = rng.dirichlet(np.full(args.classes, 0.1), num_clients)
            for name, goal in goals(mixes, rng).items():
                drawn = int((dpcs_probabilities(mixes, goal) > 0).sum())
                ridge = median_ms(mixes, goal, args.repeats)
                none = median_ms(mixes, goal, args.repeats, ridge=0)
                corner = median_ms(mixes, goal, 1, norm="l1")
                print(f"{num_clients:>8}  {name:<20}{drawn:>8}", end="")
                print(f"{ridge:>9.0f}{none:>10.0f}{corner:>8.0f}", flush=True)


if __name__ == "__main__":
    main()
