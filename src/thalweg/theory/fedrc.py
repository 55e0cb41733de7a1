"""FedRC: responsibilities of models for samples, corrected for label frequencies."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Ints
from thalweg.theory.inputs import as_array, count, distribution

FLOOR = 1e-8  # lower bound of shares, so that no model or label becomes impossible


def responsibilities(
    losses: npt.ArrayLike, labels: npt.ArrayLike, mixture: npt.ArrayLike, priors: npt.ArrayLike
) -> Floats:
    r"""(C, n) responsibility of each model for each sample; columns sum to one. The E-step.

    .. math::
        \gamma_{i;c} = \frac{\hat\alpha_c\, e^{-f_c(i)} / A_{y_i,c}}
                            {\sum_{c'} \hat\alpha_{c'}\, e^{-f_{c'}(i)} / A_{y_i,c'}}

    Computed with logarithms, so that large losses do not underflow.

    Symbols, FedRC, FedDAA (14) -> here
        :math:`f_c(i)`       loss of sample i by model c     -> losses (C, n)
        :math:`y_i`                                          -> labels (n,)
        :math:`\hat\alpha`   the client's mixture of models  -> mixture (C,)
        :math:`A_{y,c}`      share of label y among the samples that model c explains
                                                             -> priors (C, R), see `label_priors`

    Differs from the paper: its (14) sums over clients in the denominator, a misprint; proof and
    released code sum over models.

    >>> responsibilities([[0.2, 1.5], [1.2, 0.3]], [0, 1], [1, 1], [[1, 1], [1, 1]]).round(6)
    array([[0.731059, 0.231475],
           [0.268941, 0.768525]])
    """
    terms = _terms(losses, labels, mixture, priors)
    if terms.shape[1] == 0:
        return terms
    return np.exp(terms - _log_sum_exp(terms))


def client_mixture(shares: npt.ArrayLike) -> Floats:
    r"""(C,) mixture of a client, :math:`\hat\alpha_c = \mathrm{mean}_i\, \gamma_{i;c}`.

    Uniform without samples.

    At least 1e-8 each, because a share of zero would remain zero.

    >>> client_mixture([[0.731059, 0.231475], [0.268941, 0.768525]]).round(6)
    array([0.481267, 0.518733])
    """
    table = _table(shares, "shares")
    if table.shape[1] == 0:
        return np.full(len(table), 1 / len(table))
    return distribution(np.maximum(table.mean(axis=1), FLOOR), "shares")


def label_mass(shares: npt.ArrayLike, labels: npt.ArrayLike, num_classes: int) -> Floats:
    r"""(C, R) mass of each label per model: :math:`b_{c,y} = \sum_{i: y_i = y} \gamma_{i;c}`.

    >>> label_mass([[0.7, 0.2, 0.1], [0.3, 0.8, 0.9]], [0, 1, 1], 3).round(6).tolist()
    [[0.7, 0.3, 0.0], [0.3, 1.7, 0.0]]
    """
    table, classes = _table(shares, "shares"), count(num_classes, "num_classes")
    y = _labels(labels, table.shape[1], classes)
    return np.stack([np.bincount(y, weights=row, minlength=classes) for row in table])


def label_priors(mass: npt.ArrayLike) -> Floats:
    r"""(C, R) label distribution of each model; rows sum to one.

    .. math::  A_{y,c} = \frac{\max(b_{c,y}, 10^{-8})}{\sum_{y'} \max(b_{c,y'}, 10^{-8})}

    b is the sum of the clients' `label_mass`. A model without mass has a uniform distribution.

    >>> label_priors([[0.731059, 0.231475], [0, 0]]).round(6).tolist()
    [[0.759515, 0.240485], [0.5, 0.5]]
    """
    b = _table(mass, "mass")
    if b.size == 0 or not (b.min() >= 0 and b.max() < np.inf):
        raise ConfigError(
            "mass must have a row per model and a column per label, all non-negative and finite, "
            f"got shape {b.shape}."
        )
    floored = np.maximum(b, FLOOR)
    priors: Floats = floored / floored.sum(axis=1, keepdims=True)
    return priors


def fedrc_objective(
    losses: npt.ArrayLike, labels: npt.ArrayLike, mixture: npt.ArrayLike, priors: npt.ArrayLike
) -> float:
    r"""Objective of FedRC for one client, to be maximised.

    .. math::  \mathrm{mean}_i\, \ln \sum_c \hat\alpha_c\, e^{-f_c(i)} / A_{y_i,c}

    >>> half = [[0.5, 0.5], [0.5, 0.5]]
    >>> round(fedrc_objective([[0.2, 1.5], [1.2, 0.3]], [0, 1], [0.5, 0.5], half), 6)
    0.038272
    """
    terms = _terms(losses, labels, mixture, priors)
    if terms.shape[1] == 0:
        raise ConfigError("the objective is a mean over samples: at least one sample is required.")
    return float(_log_sum_exp(terms).mean())


def _terms(
    losses: npt.ArrayLike, labels: npt.ArrayLike, mixture: npt.ArrayLike, priors: npt.ArrayLike
) -> Floats:
    r"""(C, n) logarithm of each model's term in the sum."""
    f, A = _table(losses, "losses"), _table(priors, "priors")
    alpha = distribution(mixture, "mixture", len(f))
    if len(A) != len(f) or not (A.size and A.min() > 0 and A.max() < np.inf):
        raise ConfigError(
            f"priors must have a row of positive shares for each of {len(f)} models, got shape "
            f"{A.shape}; use label_priors."
        )
    if f.size and not np.isfinite(f).all():
        raise ConfigError(
            "losses must be finite; a model has diverged. Use a smaller learning rate (local.lr)."
        )
    y = _labels(labels, f.shape[1], A.shape[1])
    with np.errstate(divide="ignore"):  # a share of zero stays zero
        terms: Floats = np.log(alpha)[:, None] - f - np.log(A[:, y])
    return terms


def _log_sum_exp(terms: Floats) -> Floats:
    """(n,) log-sum-exp over the models (C, n), without overflow."""
    top = terms.max(axis=0)
    total: Floats = top + np.log(np.exp(terms - top).sum(axis=0))
    return total


def _table(values: npt.ArrayLike, name: str) -> Floats:
    array = as_array(values, name)
    if array.ndim != 2 or len(array) == 0:
        raise ConfigError(
            f"{name} must have a row per model, at least one, got shape {array.shape}."
        )
    return array


def _labels(labels: npt.ArrayLike, size: int, num_classes: int) -> Ints:
    y = np.asarray(labels, dtype=np.int64)
    if y.shape != (size,) or (size and not (y.min() >= 0 and y.max() < num_classes)):
        raise ConfigError(
            f"labels must be {size} numbers in 0 .. {num_classes - 1}, one per sample, got shape "
            f"{y.shape}."
        )
    return y
