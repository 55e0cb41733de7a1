"""Arithmetic on whole models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Floats, Floats32

T = TypeVar("T", bound=np.generic)
BLOCK = 1 << 16  # parameters per block; 100 rows are 26 MB, so every core gets several blocks


def combine(weights: Floats, deltas: Floats32) -> Floats32:
    r"""Return the weighted sum of updates :math:`\sum_k p_k \Delta_k`: (K,), (K, P) -> (P,).

    One pass over the memory. NumPy's product is as fast, but its last bits depend on the number of
    cores. Here one core sums each block of parameters, always in the same order.

    >>> combine(np.array([0.5, 2.0]), np.array([[1, 2, 3], [10, 20, 30]], dtype=np.float32))
    array([20.5, 41. , 61.5], dtype=float32)
    """
    import torch

    K, P = deltas.shape
    if K == 0:
        return np.zeros(P, dtype=np.float32)
    row = torch.from_numpy(np.asarray(weights, dtype=np.float32))  # (K,)
    matrix = torch.from_numpy(deltas)
    total = torch.empty(P)
    whole = P // BLOCK * BLOCK
    if whole:
        blocks = matrix[:, :whole].reshape(K, -1, BLOCK).transpose(0, 1)  # (n, K, BLOCK)
        torch.bmm(row.expand(len(blocks), 1, K), blocks, out=total[:whole].view(-1, 1, BLOCK))
    torch.mv(matrix[:, whole:].T, row, out=total[whole:])
    return total.numpy()


def blend(weights: Floats, models: Sequence[Floats32]) -> Floats32:
    """Return the weighted mean of separate models: weights (Z,), models (P,) each -> (P,).

    The sum has double precision, so the mean of copies of one model is bit-identical to the model.

    >>> blend(np.array([0.25, 0.75]), [np.zeros(2, dtype=np.float32), np.ones(2, dtype=np.float32)])
    array([0.75, 0.75], dtype=float32)
    """
    result = np.empty(len(models[0]), dtype=np.float32)
    for start in range(0, len(result), BLOCK):
        block = result[start : start + BLOCK]
        total, part = np.zeros(len(block)), np.empty(len(block))
        for weight, model in zip(weights.tolist(), models, strict=True):
            if weight:
                part[...] = model[start : start + BLOCK]
                part *= weight
                total += part
        block[...] = total
    return result


def freeze(values: npt.NDArray[T]) -> npt.NDArray[T]:
    """Return a read-only copy. Checkpoints store frozen arrays only once.

    >>> freeze(np.zeros(2))[0] = 1.0
    Traceback (most recent call last):
    ValueError: assignment destination is read-only
    """
    kept = np.array(values, order="C")
    kept.flags.writeable = False
    return kept


def is_frozen(values: npt.NDArray[Any]) -> bool:
    """Whether an array cannot change: it is read-only and not a view of another array."""
    flags = values.flags
    return not flags.writeable and flags.owndata and flags.c_contiguous
