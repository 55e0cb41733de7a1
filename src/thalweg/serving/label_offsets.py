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
    num_classes = probs.shape[1]
    if len(state.offsets) == 0:
        zeros = np.zeros(num_classes)
        state = LabelOffsets(zeros, zeros, np.zeros((2, num_classes)))
    adjusted = np.full_like(probs, np.nan)
    finite = np.flatnonzero(np.isfinite(probs).all(axis=1))
    while len(finite):
        rows, finite = np.split(finite, [BLOCK - state.pending])
        q = adjusted[rows] = adjust(state, probs[rows])
        gradients = (labels[rows, None] == np.arange(num_classes)) - q
        terms = np.stack([gradients, q * (1 - q)], axis=1)  # (samples, 2, C)
        sums = np.concatenate([state.sums[None], terms]).sum(axis=0)  # in the order of arrival
        state = state._replace(sums=sums, pending=state.pending + len(rows))
        if state.pending == BLOCK:
            state = _take_step(state, horizon)
    return state, adjusted


def _take_step(state: LabelOffsets, horizon: float) -> LabelOffsets:
    curvature = np.exp(-BLOCK / horizon) * state.curvature + state.sums[1]
    offsets = state.offsets + state.sums[0] / (PRIOR + curvature)
    return LabelOffsets(offsets - offsets.mean(), curvature, np.zeros_like(state.sums))
