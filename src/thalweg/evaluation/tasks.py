"""Mixtures of models for tasks, chosen by the task's labels or by its true concept.

A task is a view of the test set that clients have had or will have. The clients' own mixtures are
for their current data, so a task needs another mixture. Every record of a task states how its
mixture was chosen (`assignment`).
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from thalweg.core.mixtures import Mixtures
from thalweg.core.types import Floats, Ints

Assignment = Literal[
    "labels",  # one E-step on the task's test samples, using their labels
    "oracle",  # the mean mixture of the clients with the task's true concept
]
ASSIGNMENTS: tuple[Assignment, ...] = get_args(Assignment)


def mixture_by_labels(losses: npt.NDArray[np.floating]) -> Floats:
    r"""(models,) the mean responsibility of each model for the samples of a task.

    .. math::  \gamma_{i;c} = \frac{e^{-f_c(i)}}{\sum_{c'} e^{-f_{c'}(i)}}, \qquad
               \hat\alpha_c = \frac 1 n \sum_i \gamma_{i;c}

    One E-step from equal weights and equal label priors. It uses the labels of the test samples,
    which a client without labels could not do.

    Symbols, Peng & Tang, FedDAA (14), (15) -> here
        f_c(i)         losses[c, i]
        \hat\alpha_c   the result

    >>> mixture_by_labels(np.array([[0.2, 1.5], [1.2, 0.3]])).round(6).tolist()
    [0.481267, 0.518733]
    """
    nearest = losses.min(axis=0)
    responsible = np.exp(-(losses.astype(np.float64) - nearest))
    found: Floats = (responsible / responsible.sum(axis=0)).mean(axis=1)
    return found


def mixture_by_concept(mixtures: Mixtures, concepts: Ints, concept: int) -> Floats | None:
    """(models,) the mean mixture of the clients with a concept (N,).

    None if there are none.

    >>> mixtures = Mixtures.from_rows(np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]))
    >>> mixture_by_concept(mixtures, np.array([0, 0, 1]), 0).tolist()
    [0.75, 0.25]
    >>> mixture_by_concept(mixtures, np.array([0, 0, 1]), 2) is None
    True
    """
    mine = concepts == concept
    return mixtures.mean(mine) if mine.any() else None
