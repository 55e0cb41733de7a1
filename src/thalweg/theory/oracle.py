"""Cost of a wrong forecast: the bound with true and with predicted probabilities."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats
from thalweg.theory.bound import b_term
from thalweg.theory.dds import ZeroProbRule, dds_ratios
from thalweg.theory.heterogeneity import heterogeneity_score
from thalweg.theory.inputs import as_array, distribution, shares
from thalweg.theory.saw import saw_weights


class OracleGap(NamedTuple):
    """Cost of a wrong forecast."""

    gap: float  # |achieved - ideal|
    oracle_error: float  # sum over the clients of the L1 distance between prediction and truth
    ideal: float  # `b_term` with ratios and weights from the truth
    achieved: (
        float  # `b_term` with ratios and weights from the prediction, under the true probabilities
    )
    errors: Floats  # (N,) L1 distance between prediction and truth, 0 to 2
    effective_budgets: Floats  # (N,) true average renewal with the predicted ratios


def oracle_gap(
    true_probs: npt.ArrayLike,
    predicted_probs: npt.ArrayLike,
    importance: npt.ArrayLike,
    heterogeneity: npt.ArrayLike,
    budgets: npt.ArrayLike,
    availability: npt.ArrayLike,
    ticks: int,
    *,
    dds_slope: float,
    dds_offset: float,
    saw_slope: float,
    saw_offset: float,
    grad_bound: float = 1.0,
    noise: float = 0.0,
    zero_prob_rule: ZeroProbRule = "extend",
    gram: npt.ArrayLike | None = None,
) -> OracleGap:
    r"""Theorem 2 as a number: increase of the bound when DDS and SAW use a forecast.

    .. math::
        \big| B(\hat\alpha, \hat p) - B(\alpha, p) \big| \le O\Big(\sum_n \delta_n\Big),
        \qquad \delta_n = \lVert \hat\pi_n - \pi_n \rVert_1

    Ratios and weights are computed from the prediction, but the stream follows the truth: the
    scores in :math:`B(\hat\alpha, \hat p)` combine predicted ratios with true probabilities. Such
    ratios renew more or less than the budget; see `effective_budgets`.

    Symbols, SFedPO (119)-(122) -> here
        :math:`\pi, \hat\pi`        -> true_probs, predicted_probs, (N, M)
        w, d                        -> importance, heterogeneity, (M,)
        :math:`\alpha_n`, q         -> budgets (or one for all), availability, (N,)
        T, G, :math:`L\eta\sigma^2` -> ticks, grad_bound, noise
        :math:`\delta_n`            -> OracleGap.errors
        K of (17)                   -> gram, for the mismatch of embeddings

    Differences from the paper: (120) prints the mismatch with the true ratios; it must be the
    predicted ones, as in the terms before it.

    >>> truth = [[0.5, 0.5], [0.2, 0.8]]
    >>> same = oracle_gap(truth, truth, [0.5, 0.5], [0.0, 1.0], 0.5, [0.2, 0.2], 5,
    ...                   dds_slope=0.15, dds_offset=0.25, saw_slope=1.0, saw_offset=0.5)
    >>> same.gap, same.oracle_error
    (0.0, 0.0)
    """
    truth = _rows(true_probs, "true_probs")  # (N, M)
    forecast = _rows(predicted_probs, "predicted_probs")  # (N, M)
    if truth.shape != forecast.shape:
        raise ConfigError(
            "true_probs and predicted_probs must have the same shape, "
            f"got {truth.shape} and {forecast.shape}."
        )
    alpha = shares(budgets, "budgets", len(truth))
    q = shares(availability, "availability", len(truth))

    def ratios(probs: Floats) -> Floats:
        return np.array(
            [
                dds_ratios(pi, importance, heterogeneity, a, dds_slope, dds_offset, zero_prob_rule)
                for pi, a in zip(probs, alpha, strict=True)
            ]
        )

    def scores(probs: Floats, renewal: Floats) -> Floats:
        return np.array(
            [
                heterogeneity_score(
                    pi, ratio, importance, heterogeneity, a, ticks, grad_bound, noise, gram
                )
                for pi, ratio, a in zip(probs, renewal, alpha, strict=True)
            ]
        )

    best = ratios(truth)
    best_scores = scores(truth, best)
    ideal = b_term(saw_weights(best_scores, q, saw_slope, saw_offset), q, best_scores, noise)

    believed = ratios(forecast)
    weights = saw_weights(scores(forecast, believed), q, saw_slope, saw_offset)
    achieved = b_term(weights, q, scores(truth, believed), noise)

    errors = np.abs(forecast - truth).sum(axis=1)  # (N,)
    return OracleGap(
        gap=abs(achieved - ideal),
        oracle_error=float(errors.sum()),
        ideal=ideal,
        achieved=achieved,
        errors=errors,
        effective_budgets=(truth * believed).sum(axis=1),
    )


def _rows(probs: npt.ArrayLike, name: str) -> Floats:
    table = as_array(probs, name)
    if table.ndim != 2 or table.size == 0:
        raise ConfigError(
            f"{name} must have a row per client and a column per state, got shape {table.shape}."
        )
    return np.array([distribution(row, f"{name}[{n}]") for n, row in enumerate(table)])
