"""Arithmetic on whole models."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Floats, Floats32

T = TypeVar("T", bound=np.generic)
BLOCK = 1 << 16  # parameters per block
SUM_BLOCK = 1 << 13  # parameters per block of a sum: it stays in the cache
PARALLEL_SIZE = 1 << 24  # numbers; the sum of fewer takes some milliseconds


@runtime_checkable
class RemoteRows(Protocol):
    """A matrix (K, P) of updates that is not in this process, for `combine`.

    ``numpy.asarray`` fetches all of it, an index of one row this row; an array of positions gives
    another such matrix.
    """

    def combine(self, weights: Floats) -> Floats32:
        """Return the weighted sum of the rows, with the bits of `combine`."""

    def finite_rows(self) -> npt.NDArray[np.bool_]:
        """Return (K,) whether all numbers of a row are finite."""

    def with_zero_columns(self, first: int) -> RemoteRows:
        """Return the matrix with zeros in the columns from `first` on."""


def combine(weights: Floats, deltas: Floats32) -> Floats32:
    r"""Return the weighted sum of updates :math:`\sum_k p_k \Delta_k`: (K,), (K, P) -> (P,).

    One pass over the memory, in blocks that fit the cache. A product of matrices would be as fast,
    but its last bits depend on the number of cores. Here each sum is computed in the order of the
    updates, with double precision, and the native kernel computes the same bits.

    >>> combine(np.array([0.5, 2.0]), np.array([[1, 2, 3], [10, 20, 30]], dtype=np.float32))
    array([20.5, 41. , 61.5], dtype=float32)
    """
    if isinstance(deltas, RemoteRows):
        return deltas.combine(weights)
    factors = np.asarray(weights, dtype=np.float32)
    deltas = np.ascontiguousarray(deltas, dtype=np.float32)
    total = np.empty(deltas.shape[1], dtype=np.float32)
    if deltas.size < PARALLEL_SIZE:
        _sum_range(factors, deltas, 0, len(total), total)
        return total
    starts = range(0, len(total), BLOCK)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        sums = (
            pool.submit(_sum_range, factors, deltas, start, min(start + BLOCK, len(total)), total)
            for start in starts
        )
        for done in list(sums):
            done.result()
    return total


def find_finite_rows(deltas: Floats32) -> npt.NDArray[np.bool_]:
    """Return (K,) whether all numbers of a row of updates (K, P) are finite."""
    if isinstance(deltas, RemoteRows):
        return deltas.finite_rows()
    finite = np.empty(len(deltas), dtype=np.bool_)
    together = max(1, BLOCK // max(deltas.shape[1], 1))  # a mask of all rows exceeds the cache
    for first in range(0, len(deltas), together):
        mine = slice(first, first + together)
        finite[mine] = np.isfinite(deltas[mine]).all(axis=1)
    return finite


def zero_columns(deltas: Floats32, first: int) -> Floats32:
    """Return updates (K, P) with zeros in the columns from `first` on."""
    if isinstance(deltas, RemoteRows):
        return cast(Floats32, deltas.with_zero_columns(first))
    changed = deltas.copy()
    changed[:, first:] = 0
    return changed


def sum_range(factors: Floats32, deltas: Floats32, first: int, last: int, total: Floats32) -> None:
    """Write the weighted sums of the parameters from `first` to `last`."""
    for start in range(first, last, SUM_BLOCK):
        mine = slice(start, min(start + SUM_BLOCK, last))
        sums, part = np.zeros((2, mine.stop - mine.start))
        for factor, delta in zip(factors, deltas, strict=True):
            np.multiply(delta[mine], float(factor), out=part, dtype=np.float64)
            sums += part
        total[mine] = sums


RangeSum = Callable[[Floats32, Floats32, int, int, Floats32], None]
_sum_range: RangeSum = sum_range


def use_sum(function: RangeSum) -> None:
    """Let `combine` use a faster function that computes the bits of `sum_range`."""
    global _sum_range
    _sum_range = function


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
