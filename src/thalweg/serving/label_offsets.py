"""Offsets of the classes: a model is adjusted to the labels of one client."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from thalweg.core.types import Floats, Ints

PRIOR = 10.0  # curvature with which offsets of 0 start
LEAST = 1e-12  # of a probability; without a limit, offsets of classes of probability 0 would grow


class LabelOffsets(NamedTuple):
    """What is added to the log-probabilities of a model at one client."""

    offsets: Floats = np.empty(0)  # (C,) empty before the first sample: zeros
    curvature: Floats = np.empty(0)  # (C,) of the log loss, with forgetting


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

    Return the new state and the adjusted probabilities q (n, C).

    .. math::
        h_y \leftarrow e^{-1 / H} h_y + q_y (1 - q_y), \qquad
        b_y \leftarrow b_y + \frac{1[y \text{ is the label}] - q_y}{h_0 + h_y}

    These are Newton steps on the log loss with its diagonal. Where they come to rest, each class is
    predicted as often as it occurs. Steps become smaller with the number of samples, down to those
    for the last `horizon` (H) samples. The mean of the offsets, which has no effect, is 0. Samples
    whose probabilities are not finite, of a model that has diverged, are left out.

    A sample of class 0 with probability 1/2: the gradient is 1/2, and h = 1/4.

    >>> state, adjusted = learn_offsets(LabelOffsets(), np.array([[0.5, 0.5]]), np.array([0]), 1e6)
    >>> state.offsets.round(4).tolist(), adjusted.tolist()  # 0.5 / (10 + 0.25)
    ([0.0488, -0.0488], [[0.5, 0.5]])
    """
    num_classes = probs.shape[1]
    if len(state.offsets) == 0:
        state = LabelOffsets(*np.zeros((2, num_classes)))
    offsets, curvature = state
    adjusted, decay = np.full_like(probs, np.nan), np.exp(-1 / horizon)
    for row in np.flatnonzero(np.isfinite(probs).all(axis=1)).tolist():
        label = int(labels[row])
        scaled = np.maximum(probs[row], LEAST) * np.exp(offsets)
        q = scaled / scaled.sum()
        adjusted[row] = q
        curvature = decay * curvature + q * (1 - q)
        gradient = -q
        gradient[label] += 1
        offsets = offsets + gradient / (PRIOR + curvature)
        offsets = offsets - offsets.mean()
    return LabelOffsets(offsets, curvature), adjusted
