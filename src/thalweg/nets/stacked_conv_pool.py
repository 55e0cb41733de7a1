r"""Convolution, 2x2 max-pooling and ReLU of K stacked models.

The algorithm gives the same result as a convolution of the library and is about twice as fast per
client for the thin convolutions of LeNet-5, where a library convolution leaves most vector units
idle:

    A pooled output depends on a window of (k + 1) x (k + 1) pixels and is the maximum of the four
    convolutions whose k x k windows lie inside it. The image is cut into these windows, two pixels
    apart, and the kernel is placed at its four positions in a window of zeros. One matrix product
    then gives the four candidates of every pooled output as four contiguous blocks:

        (4 O, I (k+1)^2)  @  (I (k+1)^2, H/2 W/2 B)   ->   four times (O, H/2 W/2 B)

    Pooling is the maximum of four arrays. The zeros increase the number of multiplications by
    ((k+1)/k)^2 (1.44 for k = 5, 1.78 for k = 3), and the window matrix is 2.8 (2.25) times smaller
    than that of an ordinary convolution by matrix product.

Ties go to the first of the four positions in reading order, as in PyTorch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

POSITIONS = (
    (0, 0),
    (0, 1),
    (1, 0),
    (1, 1),
)  # offsets (down, right) of a k x k window in a (k+1) x (k+1) window


class StackedConvPool(torch.autograd.Function):
    """x (K, I, H, W, B), weight (K, O, I, k, k), bias (K, O) -> (K, O, H', W', B)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
        K, I, height, width, B = x.shape  # noqa: E741
        O, k = weight.shape[1], weight.shape[-1]  # noqa: E741
        H, W = ((side + 2 * padding - k + 1) // 2 for side in (height, width))  # pooled
        taps = k // 2 + 1  # a window is 2 taps wide: k + 1, or k + 2 with a column of zeros
        rows, columns = 2 * (H + taps - 1), 2 * (W + taps - 1)  # area covered by the windows
        # Negative where the last row or column is dropped.
        pad = (0, 0, padding, columns - width - padding, padding, rows - height - padding)
        x = (functional.pad(x, pad) if any(pad) else x).contiguous()

        by_client, by_channel, by_row, by_column, _ = x.stride()
        views = x.as_strided(
            (K, I, 2 * taps, 2 * taps, H, W, B),
            (by_client, by_channel, by_row, by_column, 2 * by_row, 2 * by_column, 1),
            x.storage_offset(),
        )
        windows = views.reshape(
            K, I * 4 * taps**2, H * W * B
        )  # a copy of 4 taps^2 / 4 times the size of x

        kernels = weight.new_zeros(K, 4, O, I, 2 * taps, 2 * taps)
        for position, (down, right) in enumerate(POSITIONS):
            kernels[:, position, :, :, down : down + k, right : right + k] = weight
        kernels = kernels.view(K, 4 * O, -1)

        candidates = torch.bmm(kernels, windows).view(K, 4, O, -1)
        y0, y1, y2, y3 = candidates.unbind(1)  # (K, O, H W B) each
        upper, lower = torch.maximum(y0, y1), torch.maximum(y2, y3)
        if any(ctx.needs_input_grad):
            # Overwrite the candidates with the differences right - left of both rows and lower -
            # upper; the backward pass needs only their signs.
            y1.sub_(y0)
            y3.sub_(y2)
            torch.sub(lower, upper, out=y0)
        y = torch.maximum(upper, lower, out=upper).add_(bias.unsqueeze(2)).relu_()

        if any(ctx.needs_input_grad):
            ctx.save_for_backward(windows, kernels, candidates, y)
            ctx.sizes = (K, I, rows, columns, B, O, k, H, W, taps)
            ctx.pad = pad
        return y.view(K, O, H, W, B)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        windows, kernels, wins, y = ctx.saved_tensors
        K, I, rows, columns, B, O, k, H, W, taps = ctx.sizes  # noqa: E741
        where_positive = (
            torch.ops.aten.threshold_backward
        )  # grad where the other tensor is positive, else 0

        grad = where_positive(grad.reshape(K, O, -1), y, 0)
        grad_bias = grad.sum(2)
        lower = where_positive(grad, wins[:, 0], 0)
        upper = grad - lower
        by_position = torch.empty_like(wins)  # (K, 4, O, H W B)
        for pair, left, right in ((upper, 0, 1), (lower, 2, 3)):
            where_positive.grad_input(pair, wins[:, right], 0, grad_input=by_position[:, right])
            torch.sub(pair, by_position[:, right], out=by_position[:, left])
        flat = by_position.view(K, 4 * O, -1)

        grad_kernels = torch.bmm(flat, windows.transpose(1, 2))
        grad_kernels = grad_kernels.view(K, 4, O, I, 2 * taps, 2 * taps)
        grad_weight = torch.zeros_like(grad_kernels[:, 0, :, :, :k, :k])
        for position, (down, right) in enumerate(POSITIONS):
            grad_weight += grad_kernels[:, position, :, :, down : down + k, right : right + k]

        if not ctx.needs_input_grad[0]:
            return None, grad_weight, grad_bias, None
        grad_windows = torch.bmm(kernels.transpose(1, 2), flat)
        grad_windows = grad_windows.view(K, I, taps, 2, taps, 2, H, W, B)
        grad_x = grad_windows.new_zeros(K, I, rows, columns, B)
        pairs = grad_x.view(K, I, rows // 2, 2, columns // 2, 2, B)
        for i in range(taps):  # windows overlap: each pair of rows belongs to `taps` windows
            for j in range(taps):
                part = grad_windows[:, :, i, :, j]  # (K, I, 2, 2, H, W, B)
                pairs[:, :, i : i + H, :, j : j + W] += part.permute(0, 1, 4, 2, 5, 3, 6)
        if any(ctx.pad):
            grad_x = functional.pad(grad_x, [-side for side in ctx.pad])
        return grad_x, grad_weight, grad_bias, None
