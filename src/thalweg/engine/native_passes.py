"""Forward and backward passes of the native kernel in the autograd of torch.

Objectives without native code compute their losses in torch from the outputs and features of this
function. Clients are computed one after the other, so that the passes of a client do not depend on
its stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from thalweg.core.errors import require
from thalweg.native.library import Kernel, SamplesRecord
from thalweg.native.program import Program, round_to_block
from thalweg.native.trainer import CODES_UINT16, FLOAT_ROWS

_Memory = npt.NDArray[np.uint8]


class NativePasses:
    """Computes the outputs of K models on K batches, differentiable once in their parameters."""

    def __init__(self, kernel: Kernel, program: Program) -> None:
        self.kernel, self.program = kernel, program
        self._free: dict[int, list[_Memory]] = {}  # workspaces by number of samples

    def can_compute(self, params: Tensor, x: Tensor) -> bool:
        """Return whether the kernel computes these tensors; gradients of x need torch."""
        dtype = torch.int64 if self.program.num_codes else torch.float32
        return params.dtype == torch.float32 and x.dtype == dtype and not x.requires_grad

    def __call__(self, params: Tensor, x: Tensor) -> Tensor:
        """Return outputs (K, B, C) of models (K, P) on inputs (K, B, ...)."""
        outputs, _ = _NetFunction.apply(params, x, self, False)  # type: ignore[no-untyped-call]
        found: Tensor = outputs
        return found

    def with_features(self, params: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs (K, B, C) and the inputs of the last layer (K, B, F)."""
        outputs, features = _NetFunction.apply(params, x, self, True)  # type: ignore[no-untyped-call]
        return outputs, features

    def borrow(self, num_samples: int, count: int) -> Workspaces:
        """Return workspaces for `count` models, which are used again after their deletion."""
        size = round_to_block(num_samples)
        free = self._free.setdefault(size, [])
        memories = []
        for _ in range(count):
            try:
                memories.append(free.pop())  # threads share the list
            except IndexError:
                memories.append(self.program.workspace(self.kernel, size, True))
        return Workspaces(memories, free)


class Workspaces:
    """Workspaces that return to their owner when the graph of autograd is deleted."""

    def __init__(self, memories: list[_Memory], free: list[_Memory]) -> None:
        self._memories, self._free = memories, free
        self.addresses: Sequence[int] = [memory.ctypes.data for memory in memories]

    def __del__(self) -> None:
        self._free.extend(self._memories)


class _NetFunction(torch.autograd.Function):
    """params (K, P), x (K, B, ...) -> outputs (K, B, C), features (K, B, F or 0)."""

    @staticmethod
    def forward(
        ctx: Any, params: Tensor, x: Tensor, passes: NativePasses, needs_features: bool
    ) -> tuple[Tensor, Tensor]:
        kernel, program = passes.kernel, passes.program
        params = params.contiguous()
        x = (x.to(torch.uint16) if program.num_codes else x).contiguous()
        K, B = x.shape[:2]
        assert params.shape == (K, program.num_params)
        assert prod(x.shape[2:]) == program.num_inputs
        outputs = torch.empty(K, B, program.num_outputs)
        features = torch.empty(K, B, program.num_features if needs_features else 0)
        rows = np.arange(B, dtype=np.int32)
        channels, height, width = x.shape[2:] if x.ndim == 5 else (program.num_inputs, 1, 1)
        samples = SamplesRecord(kind=FLOAT_ROWS, channels=channels, height=height, width=width)
        if program.num_codes:
            samples = SamplesRecord(
                kind=CODES_UINT16, channels=1, height=1, width=program.num_inputs
            )
        needs_gradient = ctx.needs_input_grad[0]
        spaces = passes.borrow(B, K if needs_gradient else 1)
        for k in range(K):
            samples.x = x.data_ptr() + x.element_size() * k * B * program.num_inputs
            kernel.forward(
                program.layers,
                len(program.layers),
                byref(samples),
                B,
                rows.ctypes.data,
                params.data_ptr() + 4 * k * program.num_params,
                needs_gradient,
                outputs.data_ptr() + 4 * k * B * program.num_outputs,
                features.data_ptr() + 4 * k * B * features.shape[2] if needs_features else None,
                spaces.addresses[k if needs_gradient else 0],
            )
        if needs_gradient:
            ctx.save_for_backward(params)
            ctx.passes, ctx.spaces, ctx.num_samples = passes, spaces, B
        if not needs_features:
            ctx.mark_non_differentiable(features)
        ctx.set_materialize_grads(False)
        return outputs, features

    @staticmethod
    def backward(
        ctx: Any, grad_outputs: Tensor | None, grad_features: Tensor | None
    ) -> tuple[Tensor, None, None, None]:
        require(
            not torch.is_grad_enabled(),  # true with create_graph=True
            "the native kernel computes first derivatives, but this objective needs second ones "
            "(create_graph=True). Use engine=torch or engine=reference.",
        )
        (params,) = ctx.saved_tensors
        kernel, program = ctx.passes.kernel, ctx.passes.program
        K, B = len(params), ctx.num_samples
        if grad_outputs is None:
            grad_outputs = torch.zeros(K, B, program.num_outputs)
        grad_outputs = grad_outputs.contiguous()
        grad_features = None if grad_features is None else grad_features.contiguous()
        gradient = torch.empty_like(params)
        for k in range(K):
            kernel.backward(
                program.layers,
                len(program.layers),
                B,
                params.data_ptr() + 4 * k * program.num_params,
                grad_outputs.data_ptr() + 4 * k * B * program.num_outputs,
                None
                if grad_features is None
                else grad_features.data_ptr() + 4 * k * B * program.num_features,
                gradient.data_ptr() + 4 * k * program.num_params,
                ctx.spaces.addresses[k],
            )
        return gradient, None, None, None
