"""A side of `peers.py`: a plain PyTorch loop over the clients, then the mean of their models."""

from __future__ import annotations

import copy
import sys

import torch
from peers_work import Work, load_client, load_model, train


def main(folder: str) -> None:
    work = Work(folder, "plain")
    torch.set_num_threads(work.cores)
    model = load_model(folder)
    for _ in range(work.rounds):
        trained = []
        for client in range(work.clients):
            own = copy.deepcopy(model)
            x, y = load_client(folder, client)
            train(own, x, y, work)
            trained.append(own)
        with torch.no_grad():
            for target, *sources in zip(
                model.parameters(), *(own.parameters() for own in trained), strict=True
            ):
                target.copy_(sum(sources[1:], start=sources[0]) / len(sources))
        work.end_round(model.parameters())


if __name__ == "__main__":
    main(sys.argv[1])
