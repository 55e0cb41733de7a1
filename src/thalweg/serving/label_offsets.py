"""Offsets of the classes: a model is adjusted to the labels of one client."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from thalweg.core.types import Floats, Ints

PRIOR = 10.0  # curvature with which offsets of 0 start


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
    scaled = probs * np.exp(state.offsets)
    return np.asarray(scaled / scaled.sum(axis=1, keepdims=True))


def learn_offsets(
    state: LabelOffsets, adjusted: Floats, labels: Ints, horizon: float
) -> LabelOffsets:
    r"""Return the offsets after samples with adjusted probabilities q (n, C) and their labels.

    .. math::
        h_y \leftarrow e^{-n / H} h_y + \textstyle\sum_i q_{iy} (1 - q_{iy}), \qquad
        b_y \leftarrow b_y + \frac{\sum_i (1[y_i = y] - q_{iy})}{h_0 + h_y}

    A Newton step on the log loss with its diagonal. Where it stays, each class is predicted as
    often as it occurs. Steps become smaller with the number of samples, down to one over those
    in the `horizon` H.

    Two samples of class 0, which had probability 1/2: both gradients are 1, and h = 1/2.

    >>> found = learn_offsets(LabelOffsets(), np.full((2, 2), 0.5), np.array([0, 0]), 1e6)
    >>> found.offsets.round(4).tolist()  # 1 / (10 + 0.5)
    [0.0952, -0.0952]
    """
    num_samples, num_classes = adjusted.shape
    old = state if len(state.offsets) else LabelOffsets(*np.zeros((2, num_classes)))
    counts = np.bincount(labels, minlength=num_classes)
    curvature = old.curvature * np.exp(-num_samples / horizon)
    curvature = curvature + (adjusted * (1 - adjusted)).sum(axis=0)
    step = (counts - adjusted.sum(axis=0)) / (PRIOR + curvature)
    offsets = old.offsets + step
    return LabelOffsets(offsets - offsets.mean(), curvature)
