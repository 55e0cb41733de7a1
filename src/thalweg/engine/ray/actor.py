"""The process on a node of a Ray cluster that trains stacks of clients."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import thalweg
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.core.vectors import combine
from thalweg.data.augment import Augmentation
from thalweg.data.base import Part, Targets
from thalweg.data.mapped import FilePart
from thalweg.engine.devices import find_obstacle, open_device
from thalweg.engine.shared_data import DataFacts
from thalweg.engine.stack_tasks import StackTask, Trainer
from thalweg.engine.workers import make_trainer
from thalweg.local import Geometry, LocalTraining, Objective
from thalweg.losses import Loss
from thalweg.native.library import VARIABLE, use_native_loops
from thalweg.native.trainer import NativeTrainer, make_native_trainer
from thalweg.nets import Net


class Software(NamedTuple):
    """What determines the bits of a result."""

    thalweg: str
    kernel: str  # such as "native-avx2"; "torch": there is none for this net
    torch: str  # version and instructions; "": all is computed by the kernel

    def __str__(self) -> str:
        words = [f"thalweg {self.thalweg}", f"kernel {self.kernel}", f"torch {self.torch}"]
        return ", ".join(words if self.torch else words[:2])

    @property
    def instruction_set(self) -> str | None:
        return None if self.kernel == "torch" else self.kernel.removeprefix("native-")


class ActorSetup(NamedTuple):
    """Everything that does not change during a run, besides the arrays of the data."""

    net: Net
    objective: Objective
    local: LocalTraining
    geometry: Geometry
    augment: Augmentation | None
    loss: Loss
    facts: DataFacts
    names: tuple[str, ...]  # of the arrays that follow in the call
    files: dict[str, FilePart]  # arrays that each node maps
    software: Software  # of the driver
    device: str  # an accelerator: the one that Ray reserves for the actor


def find_software(native: NativeTrainer | None) -> Software:
    """Return the software of this machine; `native` is the kernel for the net, if there is one."""
    kernel, torch_version = "torch" if native is None else native.kernel_name, ""
    if native is None or not native.can_train:
        import torch

        torch_version = f"{torch.__version__} with {torch.backends.cpu.get_cpu_capability()}"
    return Software(thalweg.__version__, kernel, torch_version)


class TrainingActor:
    """Holds the data and the net of a run, and computes on one core or one accelerator."""

    def __init__(self) -> None:
        self._trainer: Trainer | None = None

    def load(self, setup: ActorSetup, *arrays: npt.NDArray[Any]) -> str | None:
        """Prepare a run. Return why this machine cannot take part; None: it can."""
        missing = [part.path for part in setup.files.values() if not os.path.isfile(part.path)]
        if missing:
            return f"it has no file {missing[0]}; expected the data in a shared folder"
        files = {name: part.open() for name, part in setup.files.items()}
        given: dict[str, Any] = dict(zip(setup.names, arrays, strict=True)) | files
        data = setup.facts.add_arrays(given)
        parts = (setup.net, setup.objective, setup.local)
        fixed = (setup.geometry, setup.augment, setup.loss)
        wanted = setup.software
        if wanted.instruction_set is not None:  # this machine may have a faster one, too
            os.environ[VARIABLE] = wanted.instruction_set
        is_on_cpu = setup.device == "cpu"
        try:
            native = make_native_trainer(*parts, data, *fixed) if is_on_cpu else None
            found = find_software(native)
        except ConfigError as error:  # not on this machine
            return f"expected {wanted}, got: {str(error).rstrip('.')}"
        if found != wanted:
            return f"expected {wanted}, got {found}"
        use_native_loops()
        if is_on_cpu:
            self._trainer = make_trainer(*parts, data, 1, *fixed, use_native=True)
            return None
        if (obstacle := find_obstacle(setup.device)) is not None:
            return f"expected the device {setup.device}, but {obstacle}"
        from thalweg.engine.device_trainer import DeviceTrainer

        self._trainer = DeviceTrainer(*parts, data, *fixed, open_device(setup.device))
        return None

    def train(self, bank: Floats32, task: StackTask, ends: tuple[int, ...]) -> tuple[Any, ...]:
        """Return the deltas of a task in shards of columns, and (losses, is finite) of each row.

        `ends` are the ends of the shards.
        """
        deltas, losses = self._get_trainer().train(bank, [task])
        starts = (0, *ends[:-1])
        shards = [
            np.ascontiguousarray(deltas[:, first:last])
            for first, last in zip(starts, ends, strict=True)
        ]
        return (*shards, (losses, np.isfinite(deltas).all(axis=1)))

    def predict_many(self, models: Floats32, part: Part, rows: Ints) -> tuple[Targets, Floats32]:
        return self._get_trainer().predict_many(models, part, rows)

    def scores_many(self, models: Floats32, part: Part, rows: Ints) -> Floats32:
        return self._get_trainer().scores_many(models, part, rows)

    def combine(self, weights: Floats, rows: list[Ints], *shards: Floats32) -> Floats32:
        """Return the weighted sum of rows of some shards, one per task, for their columns."""
        chosen = [shard[mine] for shard, mine in zip(shards, rows, strict=True)]
        return combine(weights, np.concatenate(chosen))

    def _get_trainer(self) -> Trainer:
        assert self._trainer is not None, "load comes first"
        return self._trainer
