"""Nets in training: stacked models for objectives, with dropout and augmentation.

Dropout and augmentation are drawn per client and step, so that results do not depend on which
clients are computed together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np
import torch
from torch import Generator, Tensor

from thalweg.core.types import Ints
from thalweg.data.augment import Augmentation, Images
from thalweg.engine.native_passes import NativePasses
from thalweg.engine.step_seeds import image_rng
from thalweg.losses import Loss
from thalweg.nets import Net
from thalweg.nets.module_net import ModuleNet


class ModuleLeaves:
    """The tensors of one user module as leaves of autograd, in the memory of its vector (1, P).

    They are created once per round of a client. A backward pass then gives the gradient of each
    tensor, and none of the whole vector except for terms of the objective that use it.
    """

    def __init__(self, net: ModuleNet, params: Tensor) -> None:
        self.params = params.detach().requires_grad_()
        self.tensors = [piece.detach() for piece in net.split(params[0])]
        for piece, is_frozen in zip(self.tensors, net.layer.is_frozen, strict=False):
            piece.requires_grad_(not is_frozen)
        self._trained = [i for i, piece in enumerate(self.tensors) if piece.requires_grad]
        self._pieces = [params.new_empty(0)] * len(self.tensors)  # of the gradient
        for i, piece in enumerate(self.tensors):
            if not piece.requires_grad:
                self._pieces[i] = params.new_zeros(piece.numel())
        self._gradient = torch.empty_like(params)

    def compute_gradient(self, loss: Tensor) -> Tensor:
        """Return the gradient (1, P) of a loss. The next call overwrites it."""
        leaves = [self.params, *(self.tensors[i] for i in self._trained)]
        of_vector, *found = torch.autograd.grad(loss, leaves, allow_unused=True)
        for i, value in zip(self._trained, found, strict=True):
            unused = value is None
            self._pieces[i] = (torch.zeros_like(self.tensors[i]) if unused else value).reshape(-1)
        torch.cat(self._pieces, out=self._gradient[0])
        return self._gradient if of_vector is None else self._gradient.add_(of_vector)


class OneClientLoss:
    """The loss of a stack of one client, without the leading axis: this is faster."""

    def __init__(self, loss: Loss) -> None:
        self._loss = loss

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self._loss(outputs.flatten(0, 1), targets.flatten(0, 1))[None]


class NetModel:
    """A function of K parameter vectors and K batches (see `local.Model`).

    With seeds the model is in training: the dropout of each client comes from its own generator,
    which is created for every call. Without seeds there is no dropout. A user's module is then in
    evaluation mode; in training mode its buffers after the last call are kept for
    `restore_untrained`. A call with the vector of `leaves` uses its tensors. With `passes` the
    native kernel computes.
    """

    def __init__(
        self,
        net: Net,
        is_stacked: bool,
        seeds: Sequence[int] | None = None,
        leaves: ModuleLeaves | None = None,
        passes: NativePasses | None = None,
    ) -> None:
        self._net, self._is_stacked = net, is_stacked  # if False: one model after the other
        self._leaves, self._passes = leaves, passes
        self._seeds = seeds if net.is_noisy else None
        self._buffers: Tensor | None = None

    def __call__(self, params: Tensor, x: Tensor) -> Tensor:
        """Return logits (K, B, C)."""
        if self._passes is not None and self._passes.can_compute(params, x):
            return self._passes(params, x)
        if self._is_stacked:
            return self._net.apply_stacked(params, x, self._generators())
        if isinstance(self._net, ModuleNet):
            return self._call_modules(self._net, params, x)[0]
        return torch.stack([self._net.apply(*mine) for mine in self._one_by_one(params, x)])

    def with_features(self, params: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (K, B, C) and the inputs of the last layer (K, B, F)."""
        if self._passes is not None and self._passes.can_compute(params, x):
            return self._passes.with_features(params, x)
        if self._is_stacked:
            return self._net.with_features_stacked(params, x, self._generators())
        if isinstance(self._net, ModuleNet):
            outputs, features_of_all = self._call_modules(self._net, params, x)
            return outputs, torch.stack([self._net.require_features(f) for f in features_of_all])
        alone = (self._net.with_features(*mine) for mine in self._one_by_one(params, x))
        logits, features = zip(*alone, strict=True)
        return torch.stack(logits), torch.stack(features)

    @property
    def trains_features(self) -> bool:
        """Whether steps change the features."""
        return self._net.trains_features

    @property
    def still(self) -> NetModel:
        """The same model without dropout, for use as a teacher."""
        return NetModel(self._net, self._is_stacked, passes=self._passes)

    def restore_untrained(
        self, params: Tensor, before: Tensor | None, untrained: Tensor | None
    ) -> None:
        """Undo a step for the values that optimizers do not change, and set new buffers.

        `params` (K, P) are changed in place; `before` are the values of `select_untrained` at the
        positions `untrained`.
        """
        if before is None or untrained is None:
            return
        params[:, untrained] = before
        if self._buffers is not None:
            params[:, -self._net.num_buffers :] = self._buffers

    def _call_modules(
        self, net: ModuleNet, params: Tensor, x: Tensor
    ) -> tuple[Tensor, list[Tensor | None]]:
        """Return outputs (K, B, C) and features; keep the buffers of models in training."""
        leaves = self._leaves
        if leaves is not None and params is leaves.params:
            tensors = [leaves.tensors]
        else:
            tensors = [net.split(row) for row in params]
        seeds: Sequence[int | None] = self._seeds or [None] * len(params)
        found = [net.apply_and_update(*mine) for mine in zip(tensors, x, seeds, strict=True)]
        if self._seeds is not None and params.requires_grad and net.num_buffers:
            self._buffers = torch.stack([buffers for _, buffers, _ in found])
        outputs = [each[0] for each in found]
        together = outputs[0][None] if len(found) == 1 else torch.stack(outputs)  # a view is faster
        return together, [each[2] for each in found]

    def _one_by_one(
        self, params: Tensor, x: Tensor
    ) -> Iterator[tuple[Tensor, Tensor, Generator | None]]:
        return zip(params, x, self._generators() or repeat(None, len(params)), strict=True)

    def _generators(self) -> list[Generator] | None:
        if self._seeds is None:
            return None
        return [Generator().manual_seed(seed) for seed in self._seeds]


def select_untrained(untrained: Tensor | None, params: Tensor) -> Tensor | None:
    """Return a copy of the values of (K, P) that optimizers do not change; None: there are none.

    `untrained` are their positions, on the device of the parameters (see `Net.untrained`).
    """
    return None if untrained is None else params[:, untrained]


class StackAugmentation:
    """Augments the mini-batches of K clients, each with the generator of its current step."""

    def __init__(self, augment: Augmentation, seeds: Ints, num_steps: Ints) -> None:
        self._augment, self._seeds, self._num_steps = augment, seeds, num_steps

    def __call__(self, images: Images) -> Images:
        """Augment images (K, B, H, W, C), or those of all clients in order, (K * B, H, W, C)."""
        K = len(self._seeds)
        B = math.prod(images.shape[:-3]) // K
        clients = images.reshape(K, B, *images.shape[-3:])
        changed = [
            self._augment.apply(mine, image_rng(int(seed), int(step)))
            for mine, seed, step in zip(clients, self._seeds, self._num_steps, strict=True)
        ]
        return np.stack(changed).reshape(images.shape)
