"""The work of one side of `peers.py`: data, initial model, and the file with the end of each round.

A folder holds ``x.npy`` (K, n, C, H, W), ``y.npy`` (K, n), ``pixels.npy`` (K, n, H, W, C) as uint8,
``model.pt`` (a `torch.nn.Sequential`) and ``work.json``. This module needs neither Thalweg nor one
of the other frameworks.
"""

from __future__ import annotations

import functools
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

LONGEST_WAIT_S = 60.0


class Work:
    """Sizes and settings of a workload, and the ends of rounds of one side.

    After the last round the side waits until ``measured`` exists, so that `peers.py` can measure
    the memory of all its processes.
    """

    def __init__(self, folder: str | Path, side: str) -> None:
        self.folder, self.side = Path(folder), side
        settings = json.loads((self.folder / "work.json").read_text())
        self.net: str = settings["net"]
        self.clients: int = settings["clients"]
        self.batch: int = settings["batch"]
        self.steps: int = settings["steps"]
        self.rounds: int = settings["rounds"]
        self.lr: float = settings["lr"]
        self.momentum: float = settings["momentum"]
        self.cores: int = settings["cores"]
        self._ended = 0

    def end_round(self, model: Any = None) -> None:
        """Write the time; keep the parameters (tensors in order) of the model after round 1."""
        now = time.time()
        self._ended += 1
        if self._ended > self.rounds:
            return
        with (self.folder / "ends").open("a") as file:
            file.write(f"{now!r}\n")
        if self._ended == 1 and model is not None:
            flat = np.concatenate([np.asarray(each.detach()).ravel() for each in model])
            np.save(self.folder / "first.npy", flat)
        if self._ended == self.rounds:
            until = time.time() + LONGEST_WAIT_S
            while not (self.folder / "measured").exists() and time.time() < until:
                time.sleep(0.01)


@functools.cache
def load_client(folder: str, client: int) -> Any:
    """Return the samples and labels of a client as tensors; cached in each process."""
    import torch

    x = np.load(f"{folder}/x.npy", mmap_mode="r")[client]
    y = np.load(f"{folder}/y.npy", mmap_mode="r")[client]
    return torch.from_numpy(np.array(x)), torch.from_numpy(np.array(y))


@functools.cache
def load_model(folder: str) -> Any:
    """Return the initial model; cached in each process."""
    import torch

    return torch.load(f"{folder}/model.pt", weights_only=False)


def train(model: Any, x: Any, y: Any, work: Work) -> None:
    """Make one pass over a client's samples in order: `steps` mini-batches, SGD with momentum."""
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=work.lr, momentum=work.momentum)
    for rows in range(0, len(y), work.batch):
        optimizer.zero_grad()
        outputs = model(x[rows : rows + work.batch])
        loss: Any = torch.nn.functional.cross_entropy(outputs, y[rows : rows + work.batch])
        loss.backward()
        optimizer.step()
