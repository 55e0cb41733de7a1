"""Train stacks of fully connected nets without autograd, in plain PyTorch.

A step of a small net takes less time than the bookkeeping of autograd. Here the gradients are
written out, samples are gathered for many steps at once, and the gradient of a weight matrix is
added to its velocity by the same matrix product.

K clients, B samples, layer l with F inputs and O outputs, sample weights a:

    forward     h[l] = relu(h[l-1] @ W[l]^T + b[l])            (K, B, O)
    loss        d = a * (softmax(z) - onehot(y)), or a * 2 / D * (z - y)
    backward    v[l] <- momentum * v[l] + d^T @ h[l-1]         (K, O, F)
                d <- (d @ W[l]) * (h[l-1] > 0)                 (K, B, F)
    update      v <- v + weight_decay * w,  w <- w - lr * v
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from thalweg.core.tensors import get_wide_dtype
from thalweg.core.types import Ints
from thalweg.data.augment import Augmentation
from thalweg.engine.gather import Gather, RowIndices
from thalweg.engine.stack_tasks import StackTask, count_columns
from thalweg.local import Geometry, LocalTraining, Objective, Sgd, TaskLoss
from thalweg.losses import CrossEntropy, Loss, MeanSquaredError
from thalweg.nets import Net
from thalweg.nets.layers import Dense, Flatten, Relu

# Inputs that are gathered together: one megabyte, which the caches hold until they are used; on
# an accelerator 64 megabytes.
GATHERED_NUMBERS, GATHERED_ON_DEVICE = 1 << 18, 1 << 24


class DenseLayer(NamedTuple):
    """A fully connected layer."""

    inputs: int
    outputs: int
    has_relu: bool


def find_dense_layers(net: Net) -> list[DenseLayer] | None:
    """Return the layers of a net; None if there are other layers than fully connected ones.

    >>> from thalweg.nets import LeNet5, Mlp
    >>> find_dense_layers(Mlp(hidden=(3,)).build((2,), 2))[0]
    DenseLayer(inputs=2, outputs=3, has_relu=True)
    >>> find_dense_layers(LeNet5().build((1, 28, 28), 10)) is None
    True
    """
    if type(net) is not Net:
        return None
    found: list[DenseLayer] = []
    for layer in net.layers:
        if type(layer) is Dense:
            found.append(DenseLayer(layer.inputs, layer.outputs, has_relu=False))
        elif type(layer) is Relu and found:
            found[-1] = found[-1]._replace(has_relu=True)
        elif type(layer) is not Flatten:
            return None
    return found if found and not found[-1].has_relu else None


def make_dense_trainer(
    net: Net,
    objective: Objective,
    local: LocalTraining,
    gather: Gather,
    geometry: Geometry,
    augment: Augmentation | None,
    loss: Loss,
) -> DenseTrainer | None:
    """Return a trainer without autograd; None if this training needs autograd."""
    layers = find_dense_layers(net)
    if layers is None or type(objective) is not TaskLoss or type(local.optimizer) is not Sgd:
        return None
    if not geometry.is_euclidean or augment is not None or not gather.has_vectors:
        return None
    if type(loss) not in (CrossEntropy, MeanSquaredError):
        return None
    return DenseTrainer(layers, local, gather, loss)


class DenseTrainer:
    """Takes the steps of stacks of fully connected nets."""

    def __init__(
        self, layers: list[DenseLayer], local: LocalTraining, gather: Gather, loss: Loss
    ) -> None:
        self._layers, self._local, self._gather = layers, local, gather
        on_cpu = gather.device.type == "cpu"
        self._gathered_numbers = GATHERED_NUMBERS if on_cpu else GATHERED_ON_DEVICE
        self._is_regression = isinstance(loss, MeanSquaredError)

    def take_steps(
        self,
        task: StackTask,
        params: Tensor,  # (K, P)
        velocity: Tensor | None,  # (K, P); None: no momentum
        lr_scales: Tensor | None,  # (K, 1)
    ) -> Tensor:
        """Take the steps of K clients, in place; return the sums of their losses (K,)."""
        device = params.device
        losses = torch.zeros(len(params), dtype=get_wide_dtype(device), device=device)
        groups = list(_split_by_clients(task.live))
        places = send_positions([clients for _, clients in groups], device)
        rows_of_all = self._gather.prepare_rows(task.items)
        with torch.inference_mode():
            weights = torch.tensor(task.weights, device=device)
            for (steps, clients), place in zip(groups, places, strict=True):
                is_all = len(clients) == len(params)
                who = slice(None) if is_all else place
                stack = DenseStack(self._layers, len(clients), device)
                rows = params[who]  # a view if all clients take the steps, else a copy
                speeds = None if velocity is None else velocity[who]
                stack.load(stack.params, rows)
                if speeds is not None:
                    stack.load(stack.velocity, speeds)
                if lr_scales is not None:
                    stack.set_lr_scales(lr_scales[who])
                items, mine = rows_of_all[steps], weights[steps]
                if not is_all:
                    items = items[:, place if isinstance(items, Tensor) else clients]
                    mine = mine[:, place]
                live = task.live[steps][:, clients]
                widths = count_columns(task.weights[steps][:, clients], live)
                part = _Batches(items, mine, widths)
                losses[who] += self._take_all(stack, part)
                stack.store(stack.params, rows)
                if speeds is not None:
                    stack.store(stack.velocity, speeds)
                if not is_all:
                    params[who] = rows
                    if velocity is not None and speeds is not None:
                        velocity[who] = speeds
        return losses

    def _take_all(self, stack: DenseStack, part: _Batches) -> Tensor:
        """Take steps of all clients of a stack; return the sums of their losses (K,)."""
        sums = torch.zeros(
            stack.num_clients, dtype=get_wide_dtype(stack.device), device=stack.device
        )
        spaces: dict[int, Workspace] = {}
        for steps, width in self._split_steps(part, stack.num_clients):
            items = part.items[steps, :, :width]
            x, targets = self._gather.get_vectors("train", items)
            weights = part.weights[steps, :, :width]
            if width not in spaces:
                spaces[width] = Workspace(self._layers, stack.num_clients, width, stack.device)
            space = spaces[width]
            per_sample = torch.empty(weights.shape, device=stack.device)  # losses
            targets = targets.view(*weights.shape, -1)
            for step in range(len(weights)):
                self._run_forward(stack, space, x[step])
                self._compute_loss(space, targets[step], weights[step], per_sample[step])
                self._run_backward(stack, space, x[step])
                self._update(stack)
            sums += per_sample.mul_(weights).sum((0, 2), dtype=sums.dtype)
        return sums

    def _split_steps(self, part: _Batches, num_clients: int) -> Iterator[tuple[slice, int]]:
        """Return ranges of steps with mini-batches of one width, which are gathered together."""
        for width, group in groupby(range(len(part.widths)), key=part.widths.__getitem__):
            steps = list(group)
            end = steps[-1] + 1
            numbers = max(1, num_clients * width * self._layers[0].inputs)
            together = max(1, self._gathered_numbers // numbers)
            for first in range(steps[0], end, together):
                yield slice(first, min(first + together, end)), width

    def _run_forward(self, stack: DenseStack, space: Workspace, x: Tensor) -> None:
        for layer, weight, bias, out in zip(
            self._layers, stack.weights, stack.biases, space.outputs, strict=True
        ):
            torch.baddbmm(bias, x, weight.mT, out=out)
            x = out.relu_() if layer.has_relu else out

    def _compute_loss(
        self, space: Workspace, targets: Tensor, weights: Tensor, per_sample: Tensor
    ) -> None:
        """Write the loss of each sample (K, B), and its gradient in the outputs (K, B, C)."""
        outputs, errors = space.outputs[-1], space.errors[-1]
        if self._is_regression:
            torch.sub(outputs, targets, out=errors)
            torch.mean(errors.square(), 2, out=per_sample)
            errors.mul_(weights.unsqueeze(2) * (2 / errors.shape[2]))
            return
        torch.log_softmax(outputs, 2, out=errors)
        per_sample.copy_(errors.gather(2, targets).squeeze(2)).neg_()
        errors.exp_().scatter_add_(2, targets, space.minus_ones)
        errors.mul_(weights.unsqueeze(2))

    def _run_backward(self, stack: DenseStack, space: Workspace, x: Tensor) -> None:
        """Add the gradient to the velocity of all layers."""
        momentum = self._local.momentum  # 0: the velocity becomes the gradient
        for number in reversed(range(len(self._layers))):
            errors = space.errors[number]
            inputs = space.outputs[number - 1] if number else x
            stack.velocity_weights[number].baddbmm_(errors.mT, inputs, beta=momentum)
            stack.velocity_biases[number].baddbmm_(space.ones, errors, beta=momentum)
            if number:
                torch.bmm(errors, stack.weights[number], out=space.errors[number - 1])
                if self._layers[number - 1].has_relu:
                    is_zero = torch.le(inputs, 0, out=space.is_zero[number - 1])
                    space.errors[number - 1].masked_fill_(is_zero, 0)

    def _update(self, stack: DenseStack) -> None:
        local = self._local
        if local.weight_decay:
            stack.velocity.add_(stack.params, alpha=local.weight_decay)
        if stack.lr_scales is None:
            stack.params.add_(stack.velocity, alpha=-local.lr)
        else:
            stack.params.addcmul_(stack.velocity, stack.lr_scales, value=-local.lr)


class DenseStack:
    """The parameters of K clients, layer by layer.

    In one vector: the weights (K, O, F) and biases (K, 1, O) of the first layer, then those of the
    next one. Matrix products then read and write contiguous memory, and an update is one operation.
    """

    def __init__(
        self, layers: list[DenseLayer], num_clients: int, device: torch.device | str = "cpu"
    ) -> None:
        self.num_clients, self.device = num_clients, torch.device(device)
        self._shapes = [
            shape
            for layer in layers
            for shape in ((layer.outputs, layer.inputs), (1, layer.outputs))
        ]
        self._sizes = [prod(shape) for shape in self._shapes]
        total = num_clients * sum(self._sizes)
        self.params, self.velocity = torch.empty(2, total, device=device)
        self.lr_scales: Tensor | None = None  # factors of the learning rate, as `params`
        self.weights, self.biases = self._split(self.params)
        self.velocity_weights, self.velocity_biases = self._split(self.velocity)

    def load(self, vector: Tensor, rows: Tensor) -> None:
        """Copy rows (K, P), in the order of `Net`, to a vector."""
        for view, piece in self._pair(vector, rows):
            view.copy_(piece)

    def store(self, vector: Tensor, rows: Tensor) -> None:
        """Copy a vector to rows (K, P), in the order of `Net`."""
        for view, piece in self._pair(vector, rows):
            piece.copy_(view)

    def _pair(self, vector: Tensor, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Return views (K, size) of each tensor, in a vector and in rows."""
        pieces = rows.split(self._sizes, dim=1)  # type: ignore[no-untyped-call]
        views = (view.view(self.num_clients, -1) for view in self._views(vector))
        return zip(views, pieces, strict=True)

    def set_lr_scales(self, scales: Tensor) -> None:
        """Set the factors (K, 1) of the learning rates."""
        self.lr_scales = torch.empty_like(self.params)
        self.load(self.lr_scales, scales.expand(-1, sum(self._sizes)))

    def _views(self, vector: Tensor) -> list[Tensor]:
        K = self.num_clients
        pieces = vector.split([K * size for size in self._sizes])  # type: ignore[no-untyped-call]
        return [piece.view(K, *shape) for piece, shape in zip(pieces, self._shapes, strict=True)]

    def _split(self, vector: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Return views of the weights and of the biases of all layers."""
        views = self._views(vector)
        return views[::2], views[1::2]


class Workspace:
    """Memory for one step of K clients with B samples each."""

    def __init__(
        self, layers: list[DenseLayer], num_clients: int, width: int, device: torch.device
    ) -> None:
        shapes = [(num_clients, width, layer.outputs) for layer in layers]
        self.outputs = [torch.empty(shape, device=device) for shape in shapes]
        self.errors = [torch.empty(shape, device=device) for shape in shapes]
        self.is_zero = [torch.empty(shape, dtype=torch.bool, device=device) for shape in shapes]
        self.ones = torch.ones(num_clients, 1, width, device=device)
        self.minus_ones = torch.full((num_clients, width, 1), -1.0, device=device)


class _Batches(NamedTuple):
    """Mini-batches of clients that all take every step."""

    items: RowIndices  # (S, K, B)
    weights: Tensor  # (S, K, B)
    widths: list[int]  # (S,) columns that are not padding for all clients


def _split_by_clients(live: npt.NDArray[np.bool_]) -> Iterator[tuple[slice, Ints]]:
    """Return ranges of steps that the same clients take, and these clients."""
    changes = np.flatnonzero((live[1:] != live[:-1]).any(axis=1)) + 1
    for first, last in pairwise([0, *changes.tolist(), len(live)]):
        clients = np.flatnonzero(live[first]) if last > first else np.empty(0, dtype=np.int64)
        if len(clients):
            yield slice(first, last), clients


def send_positions(parts: Sequence[Ints], device: torch.device) -> list[Tensor]:
    """Copy several arrays of positions to a device at once."""
    if device.type == "cpu":
        return [torch.from_numpy(part) for part in parts]
    joined = np.concatenate([np.empty(0, dtype=np.int64), *parts])
    sizes = [len(part) for part in parts]
    found: list[Tensor] = list(torch.from_numpy(joined).to(device).split(sizes))  # type: ignore[no-untyped-call]
    return found
