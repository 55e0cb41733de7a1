"""Offsets of the classes: a model is adjusted to the labels of one client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from thalweg.core.types import Floats, Ints

PRIOR = 10.0  # curvature with which offsets of 0 start
BLOCK = 10  # samples between two steps
LEAST = 1e-12  # of a probability; without a limit, offsets of classes of probability 0 would grow


class LabelOffsets(NamedTuple):
    """What is added to the log-probabilities of a model at one client."""

    offsets: Floats = np.empty(0)  # (C,) empty before the first sample: zeros
    curvature: Floats = np.empty(0)  # (C,) of the log loss, with forgetting
    sums: Floats = np.empty(0)  # (2, C) gradient and curvature of the samples since the last step
    pending: int = 0  # number of these samples


def adjust(state: LabelOffsets, probs: Floats) -> Floats:
    r"""Return (n, C) the probabilities with the offsets b of the classes.

    .. math::  q_y = p_y e^{b_y} \big/ \textstyle\sum_c p_c e^{b_c}

    >>> twice = LabelOffsets(np.log([2.0, 1.0]), np.zeros(2))
    >>> adjust(twice, np.array([[0.25, 0.75]])).tolist()
    [[0.4, 0.6]]
    """
    if len(state.offsets) == 0:
        return probs
    scaled = np.maximum(probs, LEAST) * np.exp(state.offsets)
    return np.asarray(scaled / scaled.sum(axis=1, keepdims=True))


def learn_offsets(
    state: LabelOffsets, probs: Floats, labels: Ints, horizon: float
) -> tuple[LabelOffsets, Floats]:
    r"""Adjust probabilities p (n, C) one after the other, and learn from each label afterwards.

    Return the new state and the adjusted probabilities q (n, C). After each `BLOCK` of samples:

    .. math::
        h_y \leftarrow e^{-10 / H} h_y + \textstyle\sum_i q_{iy} (1 - q_{iy}), \qquad
        b_y \leftarrow b_y + \frac{\sum_i (1[y_i = y] - q_{iy})}{h_0 + h_y}

    These are Newton steps on the log loss with its diagonal. Where they come to rest, each class is
    predicted as often as it occurs. Steps become smaller with the number of samples, down to those
    for the last `horizon` (H) samples. The mean of the offsets, which has no effect, is 0. Blocks
    are counted over all calls, so that the result does not depend on the samples of a call. Samples
    whose probabilities are not finite, of a model that has diverged, are left out.

    Ten samples of class 0 with probability 1/2: the gradient is 5, and h = 10 / 4.

    >>> probs, labels = np.full((10, 2), 0.5), np.zeros(10, dtype=int)
    >>> state, adjusted = learn_offsets(LabelOffsets(), probs, labels, horizon=1e6)
    >>> state.offsets.tolist(), adjusted[9].tolist()  # 5 / (10 + 2.5)
    ([0.4, -0.4], [0.5, 0.5])
    """
    states, adjusted = learn_offsets_together([state], probs, labels, [len(labels)], horizon)
    return states[0], adjusted


def learn_offsets_together(
    states: Sequence[LabelOffsets],
    probs: Floats,
    labels: Ints,
    sizes: Sequence[int],
    horizon: float,
) -> tuple[list[LabelOffsets], Floats]:
    """`learn_offsets` of several clients, of which each has the next samples of the table.

    The first `sizes[0]` samples are those of the first client, and so on. The bits are those of
    each client alone.
    """
    num_clients, num_classes = len(states), probs.shape[1]
    zeros = np.zeros(num_classes)
    new = LabelOffsets(zeros, zeros, np.zeros((2, num_classes)))
    states = [state if len(state.offsets) else new for state in states]
    offsets = np.stack([state.offsets for state in states])  # (K, C)
    curvature = np.stack([state.curvature for state in states])
    pending = np.array([state.pending for state in states])
    finite = np.flatnonzero(np.isfinite(probs).all(axis=1))
    owner = np.repeat(np.arange(num_clients), sizes)[finite]
    counts = np.bincount(owner, minlength=num_clients)
    # The position of each sample in the sequence of its client, from its first open block on.
    place = np.arange(len(finite)) + (pending - np.cumsum(counts) + counts)[owner]
    block, slot = np.divmod(place, BLOCK)
    num_blocks = int(block.max(initial=-1)) + 1
    limited = np.ones((num_blocks, num_clients, BLOCK, num_classes))
    limited[block, owner, slot] = np.maximum(probs[finite], LEAST)
    is_label = np.zeros(limited.shape, dtype=bool)
    is_label[block, owner, slot, labels[finite]] = True
    is_empty = np.ones(limited.shape[:3], dtype=bool)
    is_empty[block, owner, slot] = False
    has_empty = np.asarray(is_empty.any(axis=(1, 2)), dtype=bool).tolist()
    num_full = (pending + counts) // BLOCK  # (K,) blocks that are full
    least, most = int(num_full.min()), int(num_full.max())
    # The terms of a block follow the sums before it, and are added in the order of arrival.
    terms = np.empty((num_clients, BLOCK + 1, 2, num_classes))
    sums = np.stack([state.sums for state in states])
    decay = np.exp(-BLOCK / horizon)
    for number, q in enumerate(limited):
        q *= np.exp(offsets)[:, None]
        q /= q.sum(axis=2, keepdims=True)
        terms[:, 0] = sums
        np.subtract(is_label[number], q, out=terms[:, 1:, 0])
        np.multiply(q, 1 - q, out=terms[:, 1:, 1])
        if has_empty[number]:
            terms[:, 1:][is_empty[number]] = 0.0
        sums = terms.sum(axis=1)
        if number < most:
            stepped = decay * curvature + sums[:, 1]
            moved = offsets + sums[:, 0] / (PRIOR + stepped)
            moved -= moved.sum(axis=1, keepdims=True) / num_classes
            if number < least:
                offsets, curvature, sums = moved, stepped, np.zeros_like(sums)
            else:
                full = np.asarray(num_full > number)
                rows = full[:, None]
                offsets, curvature = (
                    np.where(rows, moved, offsets),
                    np.where(rows, stepped, curvature),
                )
                sums[full] = 0.0
    adjusted = np.full_like(probs, np.nan)
    adjusted[finite] = limited[block, owner, slot]
    left = ((pending + counts) % BLOCK).tolist()
    return [
        LabelOffsets(*each) for each in zip(offsets, curvature, sums, left, strict=True)
    ], adjusted
