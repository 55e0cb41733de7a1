"""Scores of a model on held-out data, overall and in every latent state."""

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


def compute_scores(
    right: npt.NDArray[np.bool_] | Floats,
    losses: npt.NDArray[np.floating],
    labels: Ints,
    histograms: Floats,
    importance: Floats,
) -> ModelScores:
    r"""Accuracy, balanced accuracy and loss, and the accuracy in each latent state.

    `right` is whether each prediction is correct, or the share of clients with a correct one.

    Balanced accuracy is the mean over classes of the share of correct predictions. A model that
    always predicts the largest class has 1/C, whatever the size of that class.

    A state differs from the test set in its class mix only, so its accuracy follows from the
    accuracy per class, :math:`\mathrm{acc}_m = \sum_c h_{m,c}\,\mathrm{acc}_c`. Classes that the
    test set lacks are left out of the mix. A state with such classes only is left out; if there is
    no other state, the scores over states are nan.

    Shapes: right, losses, labels (n,); histograms (M, C); importance (M,).

    >>> right = np.array([True, True, True, False])
    >>> scores = compute_scores(right, np.ones(4), np.array([0, 0, 1, 1]),
    ...                         np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([0.5, 0.5]))
    >>> scores.accuracy, scores.balanced_accuracy
    (0.75, 0.75)
    >>> scores.state_accuracy, scores.worst_state_accuracy
    (0.875, 0.75)
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
