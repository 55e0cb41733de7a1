"""Arithmetic on whole models."""

from __future__ import annotations

import numpy as np

from thalweg.core.types import Floats, Floats32

BLOCK = (
    1 << 16
)  # parameters per block: 100 rows of it are 26 MB, enough for every core to have several


def combine(weights: Floats, deltas: Floats32) -> Floats32:
    r"""The weighted sum of updates, :math:`\sum_k p_k \Delta_k`: weights (K,), deltas (K, P) -> (P,).

    One pass at the speed of memory. NumPy's product is as fast, but its last bits depend on the number
    of cores; here every block of parameters is summed by one core, always in the same way.

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
