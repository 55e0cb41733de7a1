"""Train whole cohorts on an accelerator.

A task is copied to the device once, and nothing is copied back before its last step, so that the
device need not wait for this process.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from thalweg.core.types import Floats, Floats32, Ints
from thalweg.data.augment import Augmentation
from thalweg.data.base import Dataset, Part, Targets
from thalweg.engine.device_deltas import DeviceDeltas
from thalweg.engine.device_gather import DeviceGather
from thalweg.engine.devices import (
    DeviceWarning,
    OutOfDeviceMemory,
    estimate_stack_size,
    find_free_memory,
    release_memory,
    report_exhaustion,
)
from thalweg.engine.stack_tasks import StackLimit, StackTask, split_task
from thalweg.engine.stacked import StackedTrainer, one_thread
from thalweg.local import Geometry, LocalTraining, Objective
from thalweg.losses import Loss
from thalweg.nets import Net

T = TypeVar("T")

PREDICT_BATCH = 1024  # samples, as long as they fit the memory


class TrainedStack(NamedTuple):
    """The results of K clients, on the device."""

    deltas: Tensor  # (K, P)
    loss_sums: Tensor  # (K,) over the steps
    num_steps: Ints  # (K,)


class DeviceTrainer(StackedTrainer):
    """A `StackedTrainer` on a device, with stacks as large as its memory allows.

    With `only_mean` updates stay on the device, for recipes that use only their weighted mean.
    """

    def __init__(
        self,
        net: Net,
        objective: Objective,
        local: LocalTraining,
        data: Dataset,
        geometry: Geometry,
        augment: Augmentation | None,
        loss: Loss,
        device: torch.device,
        only_mean: bool = False,
    ) -> None:
        gather = DeviceGather(data, device)
        super().__init__(net, objective, local, gather, geometry, augment, loss, stack_all=True)
        self._predict_batch, self._only_mean = PREDICT_BATCH, only_mean
        free = find_free_memory(device)  # beside the data
        self.limit = StackLimit(estimate_stack_size(net, local.batch_size, free))

    def train(self, bank: Floats32, tasks: Sequence[StackTask]) -> tuple[Floats32, Floats]:
        num_clients = sum(len(task.models) for task in tasks)
        shape = (0 if self._only_mean else num_clients, bank.shape[1])
        deltas, num_done = np.empty(shape, dtype=np.float32), 0
        kept: list[Tensor] = []  # rows of updates
        loss_sums, num_steps = [], [np.empty(0, dtype=np.int64)]
        todo = deque(tasks)
        while todo:
            task = todo.popleft()
            if len(task.models) > self.limit.size:
                todo.extendleft(reversed(split_task(task, self.limit.size)))
                continue
            trained = self._try_task(bank, task)
            if trained is None:
                self._halve_stacks(len(task.models))
                todo.appendleft(task)
                continue
            if self._only_mean:
                kept += trained.deltas.unbind()
            else:
                mine = slice(num_done, num_done + len(trained.deltas))
                torch.from_numpy(deltas[mine]).copy_(trained.deltas)
            num_done += len(trained.deltas)
            loss_sums.append(trained.loss_sums)
            num_steps.append(trained.num_steps)
            del trained  # frees memory for the next stack
        losses = torch.cat(loss_sums).cpu().numpy() if loss_sums else np.empty(0)
        with np.errstate(invalid="ignore"):  # without a step: 0 / 0 is nan
            mean_losses = losses.astype(np.float64) / np.concatenate(num_steps)
        if self._only_mean:
            return cast(Floats32, DeviceDeltas(kept, bank.shape[1])), mean_losses
        return deltas, mean_losses

    def _try_task(self, bank: Floats32, task: StackTask) -> TrainedStack | None:
        """Train a task; return None if the memory does not suffice for all of its clients."""
        try:
            with one_thread(), self.guard(len(task.models)):
                stack = self.begin(bank, task.models, task.lr_scales, task.noise)
                self.steps(stack, task.items, task.weights, task.live, sizes=task.sizes)
                return TrainedStack(stack.params.sub_(stack.start), stack.loss_sum, stack.num_steps)
        except OutOfDeviceMemory:
            if len(task.models) <= 1:
                raise
            return None

    def _halve_stacks(self, num_clients: int) -> None:
        """Train at most half as many clients together from now on."""
        self.limit.size = (num_clients + 1) // 2
        self._report(f"{num_clients} clients", self.limit.size)

    def guard(self, num_clients: int) -> AbstractContextManager[None]:
        return report_exhaustion(self._device, f"{num_clients} clients")

    def predict_many(
        self, models: Floats32, part: Part, rows: Ints | None = None
    ) -> tuple[Targets, Floats32]:
        predict = super().predict_many
        return self._repeat(lambda: predict(models, part, rows))

    def _outputs_many(self, models: Floats32, rows: Ints, part: Part) -> Floats32:
        compute = super()._outputs_many
        return self._repeat(lambda: compute(models, rows, part))

    def _repeat(self, compute: Callable[[], T]) -> T:
        """Return the result of a prediction, with smaller batches if the memory is exhausted."""
        while True:
            try:
                with report_exhaustion(self._device, f"{self._predict_batch} samples"):
                    return compute()
            except OutOfDeviceMemory:
                if self._predict_batch <= 1:
                    raise
            before, self._predict_batch = self._predict_batch, self._predict_batch // 2
            self._report(f"predictions of {before} samples", self._predict_batch)

    def _report(self, what: str, instead: int) -> None:
        release_memory(self._device)
        warnings.warn(
            f"the memory of the device {self._device} does not suffice for {what} together; from "
            f"now on {instead} are computed together.",
            DeviceWarning,
            stacklevel=2,
        )
