"""A side of `peers.py`: `thalweg.run` on arrays, all clients in each round, the fast engine."""

from __future__ import annotations

import sys

import numpy as np
from peers_work import Work

import thalweg
from thalweg.nets import LeNet5, Mlp

NETS = {"lenet5": LeNet5(), "mlp": Mlp(hidden=(200,))}


def main(folder: str) -> None:
    work = Work(folder, "thalweg")
    pixels, labels = np.load(f"{folder}/pixels.npy"), np.load(f"{folder}/y.npy")
    samples = labels.shape[1]
    clients = np.repeat(np.arange(work.clients), samples)
    unseen = np.random.default_rng(1).integers(0, 256, (64, *pixels.shape[2:]), dtype=np.uint8)
    data = thalweg.Dataset.from_arrays(
        pixels.reshape(-1, *pixels.shape[2:]),
        labels.ravel(),
        client=clients,
        X_test=unseen,
        y_test=np.arange(64) % 10,
    )
    thalweg.run(
        "fedavg",
        data,
        rounds=work.rounds + 1,  # the last round is evaluated, so one more than is timed
        engine="fast",
        watch=lambda progress: work.end_round(),
        net=NETS[work.net],
        memory="reservoir",
        capacity=samples,
        prequential=0,
        evaluate_every=work.rounds + 1,
        local={
            "lr": work.lr,
            "momentum": work.momentum,
            "batch_size": work.batch,
            "passes": 1,
        },
        overrides=["world=inflow", "world.partition=groups", "world.arrivals=at-start"],
    )


if __name__ == "__main__":
    main(sys.argv[1])
