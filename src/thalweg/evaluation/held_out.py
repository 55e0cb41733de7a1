"""How good the global model is on data nobody trains on, overall and in every latent state."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Floats, Ints


class ModelScores(NamedTuple):
    """Scores of one model on a test set."""

    accuracy: float
    balanced_accuracy: float  # mean recall over the classes that the test set has
    loss: float
    state_accuracy: float  # mean over states, weighted by their importance
    worst_state_accuracy: float


def held_out_scores(
    predicted: Ints,
    losses: npt.NDArray[np.float32],
    labels: Ints,
    histograms: Floats,
    importance: Floats,
) -> ModelScores:
    r"""Accuracy, balanced accuracy and loss, and the accuracy in each latent state.

    Balanced accuracy is the mean over classes of the share that is recognised, so that a model which
    always says the largest class has 1/C, however large that class is.

    A state differs from the test set in its class mix only, so its accuracy is the accuracy per
    class, :math:`\mathrm{acc}_m = \sum_c h_{m,c}\,\mathrm{acc}_c`, and costs nothing extra. Classes
    that the test set lacks are left out of the mix; a state made of such classes alone has none,
    and if there is no other state, the scores over states are nan.

    Shapes: predicted, losses, labels (n,); histograms (M, C); importance (M,).

    >>> scores = held_out_scores(
    ...     np.array([0, 0, 1, 0]), np.ones(4, dtype=np.float32), np.array([0, 0, 1, 1]),
    ...     np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([0.5, 0.5]))
    >>> scores.accuracy, scores.balanced_accuracy
    (0.75, 0.75)
    >>> scores.state_accuracy, scores.worst_state_accuracy
    (0.875, 0.75)
    """
    return compute_scores(predicted == labels, losses, labels, histograms, importance)


def compute_scores(
    right: npt.NDArray[np.bool_] | Floats,
    losses: npt.NDArray[np.floating],
    labels: Ints,
    histograms: Floats,
    importance: Floats,
) -> ModelScores:
    """The same of answers (n,) that are right or not, or right to some share of those who gave them.

    >>> compute_scores(np.array([1.0, 0.5]), np.ones(2), np.array([0, 1]), np.eye(2), np.array([0.5, 0.5])).accuracy
    0.75
    """
    count = np.bincount(labels, minlength=histograms.shape[1])  # (C,)
    hits = np.bincount(labels, weights=right, minlength=histograms.shape[1])
    per_class = np.divide(hits, count, out=np.zeros(len(count)), where=count > 0)
    mix = histograms * (count > 0)  # (M, C)
    mass = mix.sum(axis=1)
    seen = mass > 0
    per_state = (mix[seen] @ per_class) / mass[seen]
    if not seen.any():
        per_state = np.array([np.nan])
    weight = importance[seen] / importance[seen].sum() if importance[seen].sum() > 0 else None
    return ModelScores(
        accuracy=float(right.mean()),
        balanced_accuracy=float(per_class[count > 0].mean()),
        loss=float(losses.mean(dtype=np.float64)),
        state_accuracy=float(np.average(per_state, weights=weight)),
        worst_state_accuracy=float(per_state.min()),
    )
