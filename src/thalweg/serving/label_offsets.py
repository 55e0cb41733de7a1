"""Offsets of the classes: a model is adjusted to the labels of one client."""

from __future__ import annotations

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
    num_samples, num_classes = probs.shape
    if len(state.offsets) == 0:
        zeros = np.zeros(num_classes)
        state = LabelOffsets(zeros, zeros, np.zeros((2, num_classes)))
    offsets, curvature, sums, pending = state
    adjusted = np.full_like(probs, np.nan)
    finite = np.flatnonzero(np.isfinite(probs).all(axis=1))
    if len(finite) < num_samples:
        probs, labels = probs[finite], labels[finite]
    limited = np.maximum(probs, LEAST)
    is_label = labels[:, None] == np.arange(num_classes)
    terms = np.empty((BLOCK + 1, 2, num_classes))  # those of the block, after the sums before it
    found = limited  # each block is replaced by its adjusted probabilities
    decay, first = np.exp(-BLOCK / horizon), 0
    while first < len(finite):
        last = min(first + BLOCK - pending, len(finite))
        block, number = slice(first, last), last - first
        q = limited[block] * np.exp(offsets)
        q /= q.sum(axis=1, keepdims=True)
        found[block] = q
        terms[0] = sums
        np.subtract(is_label[block], q, out=terms[1 : number + 1, 0])
        np.multiply(q, 1 - q, out=terms[1 : number + 1, 1])
        sums = terms[: number + 1].sum(axis=0)  # in the order of arrival
        pending += number
        if pending == BLOCK:
            curvature = decay * curvature + sums[1]
            offsets = offsets + sums[0] / (PRIOR + curvature)
            offsets = offsets - offsets.sum() / num_classes
            sums, pending = np.zeros_like(sums), 0
        first = last
    adjusted[finite] = found
    return LabelOffsets(offsets, curvature, sums, pending), adjusted
