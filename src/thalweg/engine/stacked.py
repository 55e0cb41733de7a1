"""Train stacks of clients: one computation for the models of several clients.

Results depend on the tasks only: one thread, fixed stacks and fixed batches. They have the same
bits in this process and in any number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from thalweg.core.capabilities import Descent
from thalweg.core.tensors import get_wide_dtype
from thalweg.core.types import Floats, Floats32, Ints, LastLayer
from thalweg.data.augment import Augmentation
from thalweg.data.base import Part, Targets
from thalweg.data.predictions import ModelPredictions
from thalweg.engine.dense import make_dense_trainer, send_positions
from thalweg.engine.gather import Gather, RowIndices, SampleTransform
from thalweg.engine.models import (
    ModuleLeaves,
    NetModel,
    OneClientLoss,
    StackAugmentation,
    select_untrained,
)
from thalweg.engine.native_passes import NativePasses
from thalweg.engine.stack_tasks import PREDICT_BATCH, StackTask, count_columns, stack_size
from thalweg.engine.step_seeds import step_seeds
from thalweg.local import Batch, Euclidean, Geometry, LocalTraining, Objective, Sgd
from thalweg.local.optimizers import (
    ClientOptimizerState,
    StackState,
    export_row,
    restore_row,
    select_rows,
    write_rows,
)
from thalweg.losses import (
    CrossEntropy,
    Loss,
    compute_output_errors,
    decode_outputs,
    get_log_probabilities,
)
from thalweg.native.trainer import NativeTrainer
from thalweg.nets import Net
from thalweg.nets.module_net import ModuleNet

T = TypeVar("T")
R = TypeVar("R")

# Parameters times samples whose gradients are computed together; more exceed the cache.
GRADIENT_NUMBERS = 1 << 20


@dataclass(frozen=True, eq=False)
class Stack:
    """K clients in training. The tensors are written in place."""

    start: Tensor  # (K, P) the parameters they received
    params: Tensor  # (K, P) the parameters they have now
    optimizer: StackState  # of the K clients
    loss_sum: Tensor  # (K,) float64, over the steps taken so far
    num_steps: Ints  # (K,)
    lr_scales: Tensor | None  # (K, 1)
    noise: Ints | None  # (K,)
    leaves: ModuleLeaves | None  # the tensors in `params` of one module that is not stacked


class StackedTrainer(ModelPredictions):
    """Trains in this process, on one thread: call `begin`, any number of `steps`, and `finish`.

    The tensors are on the device of `gather`. With `stack_all` all nets that can be are stacked;
    by default those that gain from it in the caches of a processor.
    """

    def __init__(
        self,
        net: Net,
        objective: Objective,
        local: LocalTraining,
        gather: Gather,
        geometry: Geometry = Euclidean(),  # noqa: B008  frozen
        augment: Augmentation | None = None,
        loss: Loss = CrossEntropy(),  # noqa: B008  frozen
        native: NativeTrainer | None = None,
        stack_all: bool = False,
    ) -> None:
        self._net, self._objective, self._local, self._gather = net, objective, local, gather
        self._device = gather.device
        self._geometry, self._augment, self._loss = geometry, augment, loss
        self._native = native  # computes predictions, and steps if it can
        self._passes: NativePasses | None = None  # computes outputs and gradients for objectives
        if native is not None:
            self._passes = NativePasses(native.parts.kernel, native.parts.program)
        # If False: one model after the other.
        self._is_stacked = net.can_stack if stack_all else stack_size(net) > 1
        self._dense = make_dense_trainer(net, objective, local, gather, geometry, augment, loss)
        self._takes_turns = isinstance(net, ModuleNet) and not self._is_stacked  # one per step
        self._untrained = None if net.untrained is None else net.untrained.to(self._device)
        self._predict_batch = PREDICT_BATCH

    def train(self, bank: Floats32, tasks: Sequence[StackTask]) -> tuple[Floats32, Floats]:
        counts = [len(task.models) for task in tasks]
        deltas = np.empty((sum(counts), bank.shape[1]), dtype=np.float32)
        losses = np.empty(sum(counts))
        first = 0
        for task, count in zip(tasks, counts, strict=True):
            mine = slice(first, first + count)
            losses[mine] = self.train_one(bank, task, deltas[mine])
            first += count
        return deltas, losses

    def train_one(self, bank: Floats32, task: StackTask, deltas: Floats32) -> Floats:
        """Train one task: write its rows of `deltas`, return its losses."""
        with one_thread():
            stack = self.begin(bank, task.models, task.lr_scales, task.noise)
            self.steps(stack, task.items, task.weights, task.live, sizes=task.sizes)
            return self.finish(stack, deltas)

    def begin(
        self,
        bank: Floats32,
        models: Ints,
        lr_scales: Floats32 | None = None,
        noise: Ints | None = None,
    ) -> Stack:
        """Start the training of K clients, each with a model of the bank."""
        start, local = self._take_models(bank, models), self._local
        optimizer = local.optimizer.init(start, local.step_settings, self._net.param_shapes)
        params = start.clone()
        return Stack(
            start=start,
            params=params,
            optimizer=optimizer,
            loss_sum=torch.zeros(
                len(start), dtype=get_wide_dtype(self._device), device=self._device
            ),
            num_steps=np.zeros(len(start), dtype=np.int64),
            lr_scales=None if lr_scales is None else self.send(lr_scales).view(-1, 1),
            noise=noise,
            leaves=self._make_leaves(params),
        )

    def send(self, values: npt.NDArray[Any]) -> Tensor:
        """Copy an array to the device."""
        return torch.tensor(values, device=self._device)

    def _take_models(self, bank: Floats32, models: Ints) -> Tensor:
        """Return rows (K, P) of a bank on the device, to which each of them is copied once."""
        assert not len(models) or 0 <= models.min() <= models.max() < len(bank)
        if self._device.type == "cpu":
            found = torch.empty(len(models), bank.shape[1])
            np.take(bank, models, axis=0, out=found.numpy(), mode="clip")  # "raise" copies twice
            return found
        used, places = np.unique(models, return_inverse=True)
        return self.send(bank[used])[self.send(places)]

    def steps(
        self,
        stack: Stack,
        items: npt.NDArray[np.int32],  # (S, K, B)
        weights: Floats32,  # (S, K, B)
        live: npt.NDArray[np.bool_],  # (S, K)
        memo: Mapping[str, Tensor] | None = None,  # (K, P) each
        sizes: Ints | None = None,  # (S, K)
    ) -> None:
        """Take the steps of all clients that are live; the others do not change.

        Padding changes nothing for nets that treat samples independently. Modules that are not
        stacked receive the samples of each mini-batch without padding.
        """
        if self._native is not None and self._native.can_train:
            task = StackTask(np.zeros(live.shape[1], np.int64), items, weights, live, sizes=sizes)
            self._take_native_steps(self._native, stack, task, memo or {})
            return
        if self._dense is not None:
            task = StackTask(np.zeros(live.shape[1], np.int64), items, weights, live, sizes=sizes)
            velocity = stack.optimizer.get("velocity")
            stack.loss_sum.add_(
                self._dense.take_steps(task, stack.params, velocity, stack.lr_scales)
            )
            stack.num_steps[:] += live.sum(axis=0)
            return
        # Everything is copied to the device before the first step.
        memo, sent = memo or {}, self.send(weights)
        rows = items if self._is_augmented(stack) else self._gather.prepare_rows(items)
        everybody = [np.flatnonzero(mine) for mine in live]
        places = send_positions(everybody, self._device)
        for step, width in enumerate(count_columns(weights, live)):
            who, place = everybody[step], places[step]
            if not self._takes_turns:
                block = rows[step, :, :width]
                self._step_clients(stack, who, place, block, sent[step], memo)
                continue
            for k in range(len(who)):
                size = width if sizes is None else int(sizes[step, who[k]])
                one, block = slice(k, k + 1), rows[step, :, :size]
                self._step_clients(stack, who[one], place[one], block, sent[step], memo)

    def _is_augmented(self, stack: Stack) -> bool:
        """Return whether samples are changed in this process before they are sent."""
        return self._augment is not None and stack.noise is not None

    def _take_native_steps(
        self, native: NativeTrainer, stack: Stack, task: StackTask, memo: Mapping[str, Tensor]
    ) -> None:
        velocity = stack.optimizer.get("velocity")
        scales = None if stack.lr_scales is None else stack.lr_scales.view(-1).numpy()
        losses = native.take_steps(
            task,
            stack.params.numpy(),
            None if velocity is None else velocity.numpy(),
            scales,
            {name: values.numpy() for name, values in {"start": stack.start, **memo}.items()},
        )
        stack.loss_sum.add_(torch.from_numpy(losses))
        stack.num_steps[:] += task.live.sum(axis=0)

    def _step_clients(
        self,
        stack: Stack,
        who: Ints,
        place: Tensor,  # `who` on the device
        items: RowIndices,  # (K, B)
        weights: Tensor,  # (K, at least B)
        memo: Mapping[str, Tensor],
    ) -> None:
        """Take one step of the clients `who` of a stack."""
        width = items.shape[1]
        if len(who) == len(stack.params):
            block = weights[:, :width].clone(memory_format=torch.contiguous_format)  # aligned
            self._step(stack, items, block, memo)
        elif len(who):
            chosen = _select_clients(stack, who, place)
            chosen = replace(chosen, leaves=self._make_leaves(chosen.params))
            chosen_memo = {name: value[place] for name, value in memo.items()}
            mine = items[place] if isinstance(items, Tensor) else items[who]
            self._step(chosen, mine, weights[place, :width], chosen_memo)
            _write_back(stack, who, place, chosen)

    def guard(self, num_clients: int) -> AbstractContextManager[None]:
        """Return a context for steps of clients, which reports errors of a device."""
        return nullcontext()

    def export_optimizer(self, stack: Stack, k: int) -> ClientOptimizerState:
        """Return the optimizer state of client k of a stack, to be kept until its next round."""
        return export_row(stack.optimizer, k)

    def restore_optimizer(self, stack: Stack, k: int, exported: ClientOptimizerState) -> None:
        """Continue with the optimizer state that client k had after its last round."""
        restore_row(stack.optimizer, k, exported)

    def finish(self, stack: Stack, deltas: Floats32) -> Floats:
        """Write the parameter changes into deltas (K, P); return the mean losses (K,)."""
        found = torch.from_numpy(deltas)
        if self._device.type == "cpu":
            torch.sub(stack.params, stack.start, out=found)
        else:
            found.copy_(stack.params - stack.start)
        with np.errstate(invalid="ignore"):  # without a step: 0 / 0 is nan
            return stack.loss_sum.cpu().numpy() / stack.num_steps

    def predict_many(
        self, models: Floats32, part: Part, rows: Ints | None = None
    ) -> tuple[Targets, Floats32]:
        if self._native is not None:
            return self._native.predict_many(models, part, rows)
        rows = np.arange(self._gather.num_samples(part)) if rows is None else rows
        of_one = self._gather.labels(part, rows[:0]).shape[1:]  # () or (D,)
        dtype = torch.float32 if self._gather.is_regression else torch.int64
        shape = (len(models), len(rows))
        labels = torch.empty(*shape, *of_one, dtype=dtype, device=self._device)
        losses = torch.empty(shape, device=self._device)
        for mine, number, logits, right in self._compute_logits(models, part, rows):
            labels[number, mine] = decode_outputs(self._loss, logits, right)
            losses[number, mine] = self._loss(logits, right)
        return labels.cpu().numpy(), losses.cpu().numpy()

    def scores_many(self, models: Floats32, part: Part, rows: Ints | None = None) -> Floats32:
        rows = np.arange(self._gather.num_samples(part)) if rows is None else rows
        is_regression = self._gather.is_regression
        scores = [
            get_log_probabilities(self._loss, torch.from_numpy(each), is_regression).numpy()
            for each in self._outputs_many(models, rows, part)
        ]
        return np.stack(scores)

    def outputs(self, params: Floats32, rows: Ints, part: Part = "train") -> Floats32:
        """Return the logits (n, C) of a model on rows of a part."""
        outputs: Floats32 = self._outputs_many(params[None], rows, part)[0]
        return outputs

    def _outputs_many(self, models: Floats32, rows: Ints, part: Part) -> Floats32:
        """Return the logits (M, n, C) of models on rows of a part."""
        if self._native is not None:
            return self._native.outputs_many(models, part, rows)
        found = torch.empty(len(models), len(rows), self._net.num_classes, device=self._device)
        for mine, number, logits, _ in self._compute_logits(models, part, rows):
            found[number, mine] = logits
        return found.cpu().numpy()

    def last_layer(self, params: Floats32, rows: Ints) -> LastLayer:
        """Return errors and inputs of the last layer of a model on training samples."""
        model = self.send(params)
        errors, features = [], []
        with one_thread(), torch.inference_mode():
            for first in range(0, len(rows), PREDICT_BATCH):
                mine = rows[first : first + PREDICT_BATCH]
                if self._passes is not None:
                    x, labels = self._gather.get_single("train", mine)
                    outer, inner = self._passes.with_features(model[None], x[None])
                    logits, features_here = outer[0], inner[0]
                elif self._is_stacked:
                    x, labels = self._gather.get_stacked("train", mine[None])
                    outer, inner = self._net.with_features_stacked(model[None], x)
                    logits, features_here, labels = outer[0], inner[0], labels[0]
                else:
                    x, labels = self._gather.get_single("train", mine)
                    logits, features_here = self._net.with_features(model, x)
                errors.append(compute_output_errors(self._loss, logits, labels))
                features.append(features_here)
        if not errors:
            x, _ = self._gather.get_single(
                "train", np.zeros(1, dtype=np.int64)
            )  # any row, for the shapes
            logits, inner = self._net.with_features(model, x)
            return LastLayer(logits[:0].cpu().numpy(), inner[:0].cpu().numpy())
        return LastLayer(torch.cat(errors).cpu().numpy(), torch.cat(features).cpu().numpy())

    def labels(self, rows: Ints) -> Targets:
        """Return the targets of training samples."""
        return self._gather.labels("train", rows)

    def gradient(self, params: Floats32, rows: Ints, weights: Floats | None = None) -> Floats32:
        """Return the gradient (P,) of the weighted loss of training samples.

        None: the mean.
        """
        total = self._make_sums(len(params))
        given = np.full(len(rows), 1 / max(len(rows), 1)) if weights is None else weights
        shares = self.send(given.astype(np.float32))
        with one_thread():
            for first in range(0, len(rows), PREDICT_BATCH):
                mine = slice(first, first + PREDICT_BATCH)
                one = self.send(params)[None].requires_grad_()
                model, x, labels = self._inputs(rows[None, mine])
                losses = self._loss(model(one, x)[0], labels[0])
                (gradient,) = torch.autograd.grad((losses * shares[mine]).sum(), one)
                total += gradient[0]
        return total.float().cpu().numpy()

    def descend(self, params: Floats32, rows: Ints, steps: int, lr_scale: float) -> Descent:
        """Return the result of steps of the optimizer on the mean loss of training samples."""
        stack = self.begin(params[None], np.zeros(1, np.int64), np.array([lr_scale], np.float32))
        model, lengths = NetModel(self._net, self._is_stacked), [0.0]
        for _ in range(steps):
            gradient = self.gradient(stack.params[0].cpu().numpy(), rows)
            lengths.append(float(np.linalg.norm(gradient.astype(np.float64))))
            with one_thread(), torch.no_grad():
                self._move(stack, model, self.send(gradient)[None])
        return Descent(stack.params[0].cpu().numpy().copy(), max(lengths))

    def squared_gradients(self, params: Floats32, rows: Ints) -> Floats32:
        """Return (P,) the mean squared gradient of the loss over training samples."""
        total = self._make_sums(len(params))
        together = max(1, GRADIENT_NUMBERS // len(params)) if self._is_stacked else 1
        with one_thread():
            for first in range(0, len(rows), together):
                mine = rows[first : first + together]
                many = self.send(params).expand(len(mine), -1).clone().requires_grad_()
                # One sample per model: the kernel computes 16 at a time, so torch is faster.
                model, x, labels = self._inputs(mine[:, None], uses_kernel=False)
                losses = self._loss(model(many, x)[:, 0], labels[:, 0])
                (gradients,) = torch.autograd.grad(losses.sum(), many)
                total += gradients.square().sum(0, dtype=total.dtype)
        return (total / max(len(rows), 1)).float().cpu().numpy()

    def _make_sums(self, num_params: int) -> Tensor:
        return torch.zeros(num_params, dtype=get_wide_dtype(self._device), device=self._device)

    def close(self) -> None:
        """Nothing to close."""

    def _inputs(
        self, rows: RowIndices, stack: Stack | None = None, uses_kernel: bool = True
    ) -> tuple[NetModel, Tensor, Tensor]:
        """Return the model, inputs (K, B, ...) and targets (K, B) of training rows (K, B).

        Without a stack there is no dropout and no augmentation. With `uses_kernel` the model is
        computed by the native kernel where it can be.
        """
        noise = None if stack is None else stack.noise
        change: SampleTransform | None = None
        if self._augment is not None and stack is not None and noise is not None:
            change = StackAugmentation(self._augment, noise, stack.num_steps)
        seeds = None if stack is None or noise is None else step_seeds(noise, stack.num_steps)
        leaves = None if stack is None else stack.leaves
        passes = self._passes if uses_kernel else None
        model = NetModel(self._net, self._is_stacked, seeds, leaves, passes)
        if self._is_stacked and not isinstance(self._net, ModuleNet) and passes is None:
            return model, *self._gather.get_stacked("train", rows, change)
        x, labels = self._gather.get_single("train", rows.ravel(), change)
        return model, x.view(*rows.shape, *x.shape[1:]), labels.view(*rows.shape, *labels.shape[1:])

    def _step(
        self,
        stack: Stack,
        rows: RowIndices,
        weights: Tensor,
        memo: Mapping[str, Tensor],
    ) -> None:
        """Take one gradient step of every client of the stack; rows and weights are (K, B)."""
        model, x, labels = self._inputs(rows, stack)
        batch = Batch(x, labels, weights, self._loss)
        leaves, memo = stack.leaves, {"start": stack.start, **memo}
        if leaves is None:
            params = stack.params.detach().requires_grad_()  # shares memory with the stack
            loss = self._objective.loss(model, params, batch, memo)  # (K,)
            (gradient,) = torch.autograd.grad(loss.sum(), params)
        else:
            batch = batch._replace(loss=OneClientLoss(self._loss))
            loss = self._objective.loss(model, leaves.params, batch, memo)  # (1,)
            gradient = leaves.compute_gradient(loss)
        with torch.no_grad():
            self._move(stack, model, gradient)
            stack.loss_sum.add_(loss)
        stack.num_steps[:] += 1

    def _make_leaves(self, params: Tensor) -> ModuleLeaves | None:
        if not self._takes_turns or len(params) != 1:
            return None
        assert isinstance(self._net, ModuleNet)
        return ModuleLeaves(self._net, params)

    def _move(self, stack: Stack, model: NetModel, gradient: Tensor) -> None:
        before = select_untrained(self._untrained, stack.params)
        self._apply_optimizer(stack, gradient)
        model.restore_untrained(stack.params, before, self._untrained)

    def _apply_optimizer(self, stack: Stack, gradient: Tensor) -> None:
        local, settings = self._local, self._local.step_settings
        if self._geometry.is_euclidean:
            local.optimizer.step(stack.params, gradient, stack.optimizer, settings, stack.lr_scales)
            return
        assert isinstance(local.optimizer, Sgd), "other geometries need SGD (see compatibility)"
        direction = local.optimizer.direction(stack.params, gradient, stack.optimizer, settings)
        lr = local.lr if stack.lr_scales is None else local.lr * stack.lr_scales
        stack.params.copy_(self._geometry.move(stack.params, direction * lr, self._net.sizes))

    def _compute_logits(
        self, models: Floats32, part: Part, rows: Ints
    ) -> Iterator[tuple[slice, int, Tensor, Tensor]]:
        """Yield, for each batch and model, the batch, the model, its logits, and the targets.

        The samples of a batch are read once for all models.
        """
        params = [self.send(model) for model in models]
        places = self._gather.prepare_rows(rows)
        with one_thread(), torch.inference_mode():
            for first in range(0, len(rows), self._predict_batch):
                mine = slice(first, first + self._predict_batch)
                if self._is_stacked:
                    x, targets = self._gather.get_stacked(part, places[None, mine])
                    for number, model in enumerate(params):
                        logits = self._net.apply_stacked(model[None], x)[0]
                        yield mine, number, logits, targets[0]
                    continue
                x, targets = self._gather.get_single(part, places[mine])
                for number, model in enumerate(params):
                    yield mine, number, self._net.apply(model, x), targets


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: the order of sums is fixed, and workers do not compete for cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def map_in_threads(work: Callable[[T], R], parts: Sequence[T], num_threads: int) -> list[R]:
    """Return the results of `work` in the order of the parts, computed by several threads."""
    if num_threads <= 1 or len(parts) <= 1:
        with one_thread():
            return [work(part) for part in parts]
    with (
        one_thread(),
        ThreadPoolExecutor(num_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        return list(pool.map(work, parts))


def _select_clients(stack: Stack, who: Ints, index: Tensor) -> Stack:
    """Copy the clients `who`, on the device `index`, to a new stack."""
    return Stack(
        start=stack.start[index],
        params=stack.params[index],
        optimizer=select_rows(stack.optimizer, who, index),
        loss_sum=stack.loss_sum[index],
        num_steps=stack.num_steps[who],
        lr_scales=None if stack.lr_scales is None else stack.lr_scales[index],
        noise=None if stack.noise is None else stack.noise[who],
        leaves=None,
    )


def _write_back(stack: Stack, who: Ints, index: Tensor, chosen: Stack) -> None:
    stack.params[index] = chosen.params
    write_rows(stack.optimizer, who, chosen.optimizer, index)
    stack.loss_sum[index] = chosen.loss_sum
    stack.num_steps[who] = chosen.num_steps
