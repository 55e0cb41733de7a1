"""A few clients trained as one computation, and a few such computations trained one after the other.

What is computed depends on the tasks alone: one thread, fixed stacks, fixed batches. Who computes
it (this process, or some number of workers) never changes a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from thalweg.core.types import Floats, Floats32, Ints, LastLayer
from thalweg.data.augment import Augmentation
from thalweg.data.base import Part
from thalweg.engine.gather import Gather, SampleTransform
from thalweg.engine.models import NetModel, StackAugmentation, step_seeds
from thalweg.local import Batch, Euclidean, Geometry, Model, Objective, Sgd
from thalweg.nets import Net

T = TypeVar("T")
R = TypeVar("R")

# Samples per batch when predicting. Fewer leave the vector units idle, more leave the cache.
PREDICT_BATCH = 256
# Samples whose single gradients are computed side by side, times parameters. More leave the cache.
GRADIENT_NUMBERS = 1 << 20


class StackTask(NamedTuple):
    """The work of a few clients in one round, to be done as one stacked computation."""

    models: Ints  # (K,) the row of the bank each client starts from
    items: npt.NDArray[np.int32]  # (S, K, B) rows of the training part; any valid row as padding
    weights: Floats32  # (S, K, B) what each sample counts; 0 for padding
    live: npt.NDArray[np.bool_]  # (S, K) False: this client takes no step here
    lr_scales: Floats32 | None = None  # (K,) factors of the learning rate; None: all one
    noise: Ints | None = (
        None  # (K,) seeds of the clients' dropout and changed images; None: neither
    )


class Trainer(Protocol):
    """Does the arithmetic of a run."""

    def train(self, bank: Floats32, tasks: Sequence[StackTask]) -> tuple[Floats32, Floats]:
        """Deltas (K_total, P) and mean losses (K_total,), nan without a step; rows in task order."""

    def predict(
        self, params: Floats32, part: Part, rows: Ints | None = None
    ) -> tuple[Ints, Floats32]:
        """Predicted labels and cross-entropies of one model on rows of a part; none: all samples as they are."""

    def scores(self, params: Floats32, part: Part, rows: Ints | None = None) -> Floats32:
        """(n, C) logarithms of the probabilities that one model gives the classes of some rows, or of all."""

    def close(self) -> None:
        """Let go of processes and memory."""


@dataclass(frozen=True, eq=False)
class Stack:
    """K clients in the middle of their round. The tensors are written in place."""

    start: Tensor  # (K, P) the parameters they received
    params: Tensor  # (K, P) the parameters they have now
    velocity: Tensor  # (K, P)
    loss_sum: Tensor  # (K,) float64, over the steps taken so far
    num_steps: Ints  # (K,)
    lr_scales: Tensor | None  # (K, 1)
    noise: Ints | None  # (K,)


class StackedTrainer:
    """Trains in this process, on one thread. `begin`, `steps` as often as you like, `finish`."""

    def __init__(
        self,
        net: Net,
        objective: Objective,
        sgd: Sgd,
        gather: Gather,
        geometry: Geometry = Euclidean(),  # noqa: B008  frozen
        augment: Augmentation | None = None,
    ) -> None:
        self._net, self._objective, self._sgd, self._gather = net, objective, sgd, gather
        self._mirror, self._augment = geometry, augment
        self._is_stacked = stack_size(net) > 1  # else one model after the other

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
        """One task. Writes its rows of `deltas`, returns its losses."""
        with one_thread():
            stack = self.begin(bank, task.models, task.lr_scales, task.noise)
            self.steps(stack, task.items, task.weights, task.live)
            return self.finish(stack, deltas)

    def begin(
        self,
        bank: Floats32,
        models: Ints,
        lr_scales: Floats32 | None = None,
        noise: Ints | None = None,
    ) -> Stack:
        """K clients at the start of their round, each with a model of the bank."""
        start = torch.empty(len(models), bank.shape[1])
        assert not len(models) or 0 <= models.min() <= models.max() < len(bank)
        np.take(bank, models, axis=0, out=start.numpy(), mode="clip")  # "raise" would copy twice
        has_velocity = self._sgd.momentum > 0
        return Stack(
            start=start,
            params=start.clone(),
            velocity=torch.zeros_like(start) if has_velocity else torch.empty(len(start), 0),
            loss_sum=torch.zeros(len(start), dtype=torch.float64),
            num_steps=np.zeros(len(start), dtype=np.int64),
            lr_scales=None if lr_scales is None else torch.tensor(lr_scales).view(-1, 1),
            noise=noise,
        )

    def steps(
        self,
        stack: Stack,
        items: npt.NDArray[np.int32],  # (S, K, B)
        weights: Floats32,  # (S, K, B)
        live: npt.NDArray[np.bool_],  # (S, K)
        memo: Mapping[str, Tensor] | None = None,  # (K, P) each
    ) -> None:
        """Let every client that is live take its steps; the others are not touched, not even read."""
        memo = memo or {}
        widths = _widths(weights, live)
        for step, width in enumerate(widths):
            who = np.flatnonzero(live[step])
            if len(who) == len(stack.params):
                chosen, notes = stack, memo
                rows, counts = items[step, :, :width], weights[step, :, :width]
            elif len(who):
                chosen = _select_clients(stack, who)
                notes = {name: value[torch.from_numpy(who)] for name, value in memo.items()}
                rows, counts = items[step, who, :width], weights[step, who, :width]
            else:
                continue
            self._step(chosen, rows, counts, notes)
            if chosen is not stack:
                _write_back(stack, who, chosen)

    def finish(self, stack: Stack, deltas: Floats32) -> Floats:
        """Write what the clients learnt into deltas (K, P); return their mean losses (K,)."""
        torch.sub(stack.params, stack.start, out=torch.from_numpy(deltas))
        with np.errstate(invalid="ignore"):  # no step: 0 / 0 is nan, as promised
            return stack.loss_sum.numpy() / stack.num_steps

    def predict(
        self, params: Floats32, part: Part, rows: Ints | None = None
    ) -> tuple[Ints, Floats32]:
        rows = np.arange(self._gather.num_samples(part)) if rows is None else rows
        labels, losses = np.empty(len(rows), dtype=np.int64), np.empty(len(rows), dtype=np.float32)
        model = torch.tensor(params)
        with one_thread(), torch.inference_mode():
            for first in range(0, len(rows), PREDICT_BATCH):
                mine = slice(first, first + PREDICT_BATCH)
                logits, right = self._logits(model, part, rows[mine])
                labels[mine] = logits.argmax(1).numpy()
                losses[mine] = cross_entropy(logits, right, reduction="none").numpy()
        return labels, losses

    def scores(self, params: Floats32, part: Part, rows: Ints | None = None) -> Floats32:
        rows = np.arange(self._gather.num_samples(part)) if rows is None else rows
        outputs = torch.from_numpy(self.outputs(params, rows, part))
        return outputs.log_softmax(1).numpy()

    def outputs(self, params: Floats32, rows: Ints, part: Part = "train") -> Floats32:
        """(n, C) what one model answers to some samples, before it is made a probability."""
        found = np.empty((len(rows), self._net.num_classes), dtype=np.float32)
        model = torch.tensor(params)
        with one_thread(), torch.inference_mode():
            for first in range(0, len(rows), PREDICT_BATCH):
                mine = slice(first, first + PREDICT_BATCH)
                found[mine] = self._logits(model, part, rows[mine])[0].numpy()
        return found

    def last_layer(self, params: Floats32, rows: Ints) -> LastLayer:
        """Training samples as the last layer of one model sees them."""
        model = torch.tensor(params)
        errors, features = [], []
        with one_thread(), torch.inference_mode():
            for first in range(0, len(rows), PREDICT_BATCH):
                mine = rows[first : first + PREDICT_BATCH]
                if self._is_stacked:
                    x, labels = self._gather.stacked("train", mine[None])
                    outer, inner = self._net.with_features_stacked(model[None], x)
                    logits, features_here, labels = outer[0], inner[0], labels[0]
                else:
                    x, labels = self._gather.single("train", mine)
                    logits, features_here = self._net.with_features(model, x)
                error = logits.softmax(1)
                error[torch.arange(len(labels)), labels] -= 1
                errors.append(error.numpy())
                features.append(features_here.contiguous().numpy())
        if not errors:
            x, _ = self._gather.single("train", np.zeros(1, dtype=np.int64))  # any, for the shapes
            logits, inner = self._net.with_features(model, x)
            return LastLayer(logits.numpy()[:0], inner.numpy()[:0])
        return LastLayer(np.concatenate(errors), np.concatenate(features))

    def labels(self, rows: Ints) -> Ints:
        """The right answers of training samples."""
        return self._gather.labels("train", rows)

    def gradient(self, params: Floats32, rows: Ints, weights: Floats | None = None) -> Floats32:
        """(P,) of the cross-entropy of some training samples, weighted; none: of its mean."""
        total = torch.zeros(len(params), dtype=torch.float64)
        shares = torch.tensor(
            np.full(len(rows), 1 / max(len(rows), 1)) if weights is None else weights
        )
        with one_thread():
            for first in range(0, len(rows), PREDICT_BATCH):
                mine = slice(first, first + PREDICT_BATCH)
                one = torch.tensor(params)[None].requires_grad_()
                model, x, labels = self._inputs(rows[None, mine])
                losses = cross_entropy(model(one, x)[0], labels[0], reduction="none")
                (gradient,) = torch.autograd.grad((losses * shares[mine].float()).sum(), one)
                total += gradient[0]
        return total.float().numpy()

    def squared_gradients(self, params: Floats32, rows: Ints) -> Floats32:
        """(P,) mean over training samples of the squared gradient of each one's cross-entropy."""
        total = torch.zeros(len(params), dtype=torch.float64)
        together = max(1, GRADIENT_NUMBERS // len(params)) if self._is_stacked else 1
        with one_thread():
            for first in range(0, len(rows), together):
                mine = rows[first : first + together]
                many = torch.tensor(params).expand(len(mine), -1).clone().requires_grad_()
                model, x, labels = self._inputs(mine[:, None])
                losses = cross_entropy(model(many, x)[:, 0], labels[:, 0], reduction="sum")
                (gradients,) = torch.autograd.grad(losses, many)
                total += gradients.square().sum(0, dtype=torch.float64)
        return (total / max(len(rows), 1)).float().numpy()

    def close(self) -> None:
        """Nothing to let go of."""

    def _inputs(
        self, rows: npt.NDArray[np.integer], stack: Stack | None = None
    ) -> tuple[Model, Tensor, Tensor]:
        """The model as a function, inputs (K, B, ...) and labels (K, B) of training rows (K, B).

        Without a stack nobody trains: no dropout, and images as they are.
        """
        noise = None if stack is None else stack.noise
        change: SampleTransform | None = None
        if self._augment is not None and stack is not None and noise is not None:
            change = StackAugmentation(self._augment, noise, stack.num_steps)
        seeds = None if stack is None or noise is None else step_seeds(noise, stack.num_steps)
        model = NetModel(self._net, self._is_stacked, seeds)
        if self._is_stacked:
            return model, *self._gather.stacked("train", rows, change)
        x, labels = self._gather.single("train", rows.ravel(), change)
        return model, x.view(*rows.shape, *x.shape[1:]), labels.view(rows.shape)

    def _step(
        self,
        stack: Stack,
        rows: npt.NDArray[np.int32],
        weights: Floats32,
        memo: Mapping[str, Tensor],
    ) -> None:
        """One gradient step of every client of the stack; rows and weights are (K, B)."""
        model, x, labels = self._inputs(rows, stack)
        batch = Batch(x, labels, torch.tensor(weights))
        params = stack.params.detach().requires_grad_()  # the same memory
        loss = self._objective.loss(model, params, batch, {"start": stack.start, **memo})  # (K,)
        (gradient,) = torch.autograd.grad(loss.sum(), params)
        with torch.no_grad():
            self._descend(stack, gradient)
            stack.loss_sum.add_(loss)
        stack.num_steps[:] += 1

    def _descend(self, stack: Stack, gradient: Tensor) -> None:
        if self._mirror.is_euclidean:
            self._sgd.descend(stack.params, gradient, stack.velocity, stack.lr_scales)
            return
        direction = self._sgd.direction(stack.params, gradient, stack.velocity)
        lr = self._sgd.lr if stack.lr_scales is None else self._sgd.lr * stack.lr_scales
        stack.params.copy_(self._mirror.move(stack.params, direction * lr, self._net.sizes))

    def _logits(self, model: Tensor, part: Part, rows: Ints) -> tuple[Tensor, Tensor]:
        if self._is_stacked:
            x, labels = self._gather.stacked(part, rows[None])
            return self._net.apply_stacked(model[None], x)[0], labels[0]
        x, labels = self._gather.single(part, rows)
        return self._net.apply(model, x), labels


def stack_size(net: Net) -> int:
    """How many clients gain from being computed together; 1 for nets that are better left alone.

    Thin layers leave a processor waiting, and stacking fills it. A convolution of a million
    multiplications per sample is busy enough by itself and only gets in the way of the cache.
    Otherwise: as many clients as fit half a megabyte of parameters, at least 4, at most 512.
    """
    work = sum(
        layer.multiply_adds(shape)
        for layer, shape in zip(net.layers, net.shapes, strict=False)
        if len(shape) > 1
    )
    if not net.can_stack or work > 1_000_000 or net.num_params > 2_000_000:
        return 1
    return min(max(4, (1 << 17) // net.num_params), 512)


def choose_stack_sizes(net: Net, num_jobs: int) -> list[int]:
    """Sizes of the stacks for a cohort: balanced, and an even number of them, so that two are busy.

    A function of the net and the cohort, never of the number of workers: so are the bits.

    >>> from thalweg.nets import Cnn, LeNet5
    >>> choose_stack_sizes(LeNet5().build((1, 28, 28), 10), num_jobs=7)
    [4, 3]
    >>> choose_stack_sizes(Cnn().build((3, 32, 32), 10), num_jobs=3)
    [1, 1, 1]
    """
    if num_jobs == 0:
        return []
    stacks = -(-num_jobs // stack_size(net))
    stacks = min(stacks + stacks % 2, num_jobs)
    return [num_jobs // stacks + (i < num_jobs % stacks) for i in range(stacks)]


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: sums then have one order, and workers do not fight over the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def map_in_threads(work: Callable[[T], R], parts: Sequence[T], num_threads: int) -> list[R]:
    """Results in the order of the parts; each is computed on one thread, a few at the same time."""
    if num_threads <= 1 or len(parts) <= 1:
        with one_thread():
            return [work(part) for part in parts]
    with (
        one_thread(),
        ThreadPoolExecutor(num_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        return list(pool.map(work, parts))


def _widths(weights: Floats32, live: npt.NDArray[np.bool_]) -> list[int]:
    """How many columns of each step anybody uses; the rest is padding for everybody."""
    if not weights.size:
        return [0] * len(live)
    used = ((weights != 0) & live[:, :, None]).any(axis=1)  # (S, B)
    last = used.shape[1] - used[:, ::-1].argmax(axis=1)  # 0 + B where nothing is used
    return [int(width) for width in last]


def _select_clients(stack: Stack, who: Ints) -> Stack:
    """The clients `who` as a stack of their own: copies."""
    index = torch.from_numpy(who)
    return Stack(
        start=stack.start[index],
        params=stack.params[index],
        velocity=stack.velocity[index],
        loss_sum=stack.loss_sum[index],
        num_steps=stack.num_steps[who],
        lr_scales=None if stack.lr_scales is None else stack.lr_scales[index],
        noise=None if stack.noise is None else stack.noise[who],
    )


def _write_back(stack: Stack, who: Ints, chosen: Stack) -> None:
    index = torch.from_numpy(who)
    stack.params[index] = chosen.params
    stack.velocity[index] = chosen.velocity
    stack.loss_sum[index] = chosen.loss_sum
    stack.num_steps[who] = chosen.num_steps
