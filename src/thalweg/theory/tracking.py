"""Fixed share: exponential weights that follow the best predictor as it changes, and its bounds."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Ints
from thalweg.theory.inputs import as_array, distribution, positive, share

Bools = npt.NDArray[np.bool_]


class FixedShare(NamedTuple):
    """The weights and the losses of a fixed-share forecaster."""

    before: Floats  # (T, J) weights before each sample; rows sum to one
    after: Floats  # (J,) weights after the last sample
    mix_losses: Floats  # (T,)


def fixed_share(
    weights: npt.ArrayLike, losses: npt.ArrayLike, eta: float, alpha: float
) -> FixedShare:
    r"""Weights of predictors with fixed share (Herbster and Warmuth 1998).

    .. math::
        m_t = -\frac 1 \eta \ln \sum_j w_{t,j} e^{-\eta \ell_{t,j}}, \qquad
        w_{t+1,j} = (1 - \alpha) \, w_{t,j} \, e^{-\eta (\ell_{t,j} - m_t)} + \frac \alpha J

    A predictor that is not available for a sample has the loss nan. It is assigned the mix loss of
    the others, so that its share of the weight stays (Freund, Schapire, Singer and Warmuth 1997),
    and all bounds of this module hold for it. The mix loss is 0 if no predictor is available.

    Symbols -> here: :math:`w` weights; :math:`\ell` losses; :math:`m` mix_losses; J number of
    predictors.

    Shapes: weights (J,) sums to one; losses (T, J).

    With eta = ln 2, a loss of 1 halves a weight: 1/2 and 1/2 become 2/3 and 1/3, and the mix loss
    is -log2(3/4):

    >>> found = fixed_share([0.5, 0.5], [[0, 1]], eta=math.log(2), alpha=0)
    >>> found.after.round(4).tolist(), found.mix_losses.round(4).tolist()
    ([0.6667, 0.3333], [0.415])

    An alpha of 0.3 moves the weights 30 % of the way to 1/2:

    >>> fixed_share([0.5, 0.5], [[0, 1]], math.log(2), 0.3).after.round(4).tolist()
    [0.6167, 0.3833]
    """
    table = as_array(losses, "losses")
    return fixed_shares([weights], table, [len(table)] if table.ndim else [], eta, alpha)[0]


def fixed_shares(
    weights: Sequence[npt.ArrayLike],
    losses: npt.ArrayLike,
    sizes: Sequence[int],
    eta: float,
    alpha: float,
) -> list[FixedShare]:
    """`fixed_share` of several forecasters, each with weights of its own.

    The first `sizes[0]` rows of `losses` are those of the first one, and so on.

    >>> found = fixed_shares([[0.5, 0.5]] * 2, [[0, 1], [1, 0]], [1, 1], math.log(2), alpha=0)
    >>> [each.after.round(4).tolist() for each in found]
    [[0.6667, 0.3333], [0.3333, 0.6667]]
    """
    eta, alpha = positive(eta, "eta"), _at_most_one(alpha, "alpha")
    starts = [distribution(each, "weights") for each in weights]
    table = as_array(losses, "losses")
    number = len(starts[0]) if starts else 0
    is_valid = table.ndim == 2 and all(len(start) == table.shape[1] for start in starts)
    if not is_valid or np.isinf(table).any():
        raise ConfigError(
            f"losses must be finite or nan, with a column for each of {number} predictors, got "
            f"shape {table.shape}."
        )
    if len(sizes) != len(starts) or sum(sizes) != len(table) or min(sizes, default=0) < 0:
        raise ConfigError(
            f"sizes must be {len(starts)} numbers of samples with the sum {len(table)}, got "
            f"{list(sizes)}."
        )
    is_missing = np.isnan(table)
    if is_missing.any():
        lowest = np.where(is_missing, np.inf, table).min(axis=1, initial=np.inf, keepdims=True)
        lowest = np.where(np.isfinite(lowest), lowest, 0.0)
        excess = np.where(is_missing, lowest, table) - lowest
        factors = np.where(is_missing, 0.0, np.exp(-eta * excess))
    else:
        lowest = table.min(axis=1, keepdims=True) if number else np.zeros((len(table), 1))
        factors = np.exp(-eta * (table - lowest))
    before, after, ratios = _share_weights(
        np.array(starts).reshape(len(starts), number),
        factors,
        is_missing,
        np.array(sizes, dtype=np.int64),
        alpha,
    )
    mix_losses = lowest[:, 0] - np.log(ratios) / eta
    ends = np.cumsum([0, *sizes]).tolist()
    return [
        FixedShare(before[first:last], row, mix_losses[first:last])
        for row, first, last in zip(after, ends, ends[1:], strict=False)
    ]


class SharedWeights(NamedTuple):
    """The weights of K forecasters with n samples in all."""

    before: Floats  # (n, J) before each sample
    after: Floats  # (K, J) after the last sample of each forecaster
    ratios: Floats  # (n,) the sums of the weights after a loss, divided by those before it


def share_weights(
    starts: Floats, factors: Floats, is_missing: Bools, sizes: Ints, alpha: float
) -> SharedWeights:
    """Multiply weights by factors (n, J), and share them, sample by sample.

    `starts` (K, J) are the weights of the forecasters before their samples; the first `sizes[0]`
    samples are those of the first one. `is_missing` (n, J) marks predictors without a loss.
    """
    ends = np.cumsum([0, *sizes]).tolist()
    missing: dict[int, list[int]] = {}  # the predictors without a loss, of samples with some
    for sample, predictor in zip(*(each.tolist() for each in is_missing.nonzero()), strict=True):
        missing.setdefault(sample, []).append(predictor)
    runs = [
        _share_weights_of_one(start, factors[first:last].tolist(), missing, first, alpha)
        for start, first, last in zip(starts.tolist(), ends, ends[1:], strict=False)
    ]
    return SharedWeights(
        np.array([weight for each, _, _ in runs for weight in each]).reshape(factors.shape),
        np.array([after for _, after, _ in runs]).reshape(starts.shape),
        np.array([ratio for _, _, each in runs for ratio in each], dtype=np.float64),
    )


def _share_weights_of_one(
    now: list[float],
    factors: list[list[float]],
    missing: Mapping[int, list[int]],
    first: int,
    alpha: float,
) -> tuple[list[float], list[float], list[float]]:
    """Return the weights before each sample, one after another, those after the last sample, and
    the ratios of the sums of the weights.

    `missing` are the predictors without a loss by sample, where `first` is the number of the first
    one.
    """
    before: list[float] = []
    ratios, kept, added = [], 1 - alpha, alpha / len(now)
    for number, sample in enumerate(factors, first):  # plain floats: there are few predictors
        before += now
        moved = list(map(operator.mul, now, sample))
        total = _add_up(moved)
        if missing and (absent := missing.get(number)):
            # One minus the rest would be inexact, or 0, if nearly all weight is on absent ones.
            old = _add_up([weight for j, weight in enumerate(now) if j not in absent])
            has_weight = total > 0
            ratios.append(total / old if has_weight else 1.0)
            moved = [weight / total * old for weight in moved] if has_weight else now
            for j in absent if has_weight else ():
                moved[j] = now[j]
            now = [kept * weight + added for weight in moved]
        elif total > 0:
            ratios.append(total)
            now = [kept * (weight / total) + added for weight in moved]
        else:
            ratios.append(1.0)
            now = [kept * weight + added for weight in now]
    return before, now, ratios


def _add_up(weights: list[float]) -> float:
    """Return the sum with a rounding after each number; `sum` rounds once since Python 3.12."""
    return functools.reduce(operator.add, weights, 0.0)


ShareWeights = Callable[[Floats, Floats, Bools, Ints, float], SharedWeights]
_share_weights: ShareWeights = share_weights


def use_share_weights(function: ShareWeights) -> None:
    """Let `fixed_shares` use a faster function that computes the bits of `share_weights`."""
    global _share_weights
    _share_weights = function


def mix_regret_bound(
    num_samples: int, num_predictors: int, switches: int, eta: float, alpha: float
) -> float:
    r"""Bound of the mix loss of fixed share minus the loss of a sequence of predictors.

    .. math::
        \sum_t m_t - \sum_t \ell_{t, j_t} \le \frac 1 \eta \left[ \ln J + S \ln \frac J \alpha
        + (T - 1 - S) \ln \frac{1}{1 - \alpha + \alpha / J} \right]

    It holds for every sequence :math:`j_1, \dots, j_T` with S switches that uses a predictor only
    where it is available, for any losses, and if all weights are equal at the start. The bracket is
    the negative logarithm of the prior probability of the sequence (Herbster and Warmuth 1998;
    Cesa-Bianchi and Lugosi 2006, theorem 5.2). It is infinite for alpha = 0 with a switch.

    Symbols -> here: T num_samples; J num_predictors; S switches.

    Two predictors, no switch and no share: ln 2 / eta.

    >>> round(mix_regret_bound(10, 2, 0, eta=1.0, alpha=0.0), 4)
    0.6931

    One switch in two samples with alpha = 1: both are drawn from two predictors, 2 ln 2.

    >>> round(mix_regret_bound(2, 2, 1, eta=1.0, alpha=1.0), 4)
    1.3863
    """
    eta, alpha = positive(eta, "eta"), _at_most_one(alpha, "alpha")
    _check_counts(num_samples, num_predictors, switches)
    if switches and alpha == 0:
        return math.inf
    of_switches = switches * math.log(num_predictors / alpha) if switches else 0.0
    stays = num_samples - 1 - switches
    of_stays = -stays * math.log(1 - alpha + alpha / num_predictors)
    return (math.log(num_predictors) + of_switches + of_stays) / eta


def tracking_regret_bound(
    num_samples: int, num_predictors: int, switches: int, eta: float, alpha: float
) -> float:
    r"""Bound of the weighted mean loss of fixed share minus the loss of a sequence of predictors.

    .. math::
        \sum_t \sum_j w_{t,j} \ell_{t,j} - \sum_t \ell_{t, j_t} \le R + \frac{\eta T} 8

    R is `mix_regret_bound`; losses lie in [0, 1] (Hoeffding's lemma). The left side is the expected
    loss of a predictor that is drawn with the weights; for losses that are convex in the
    prediction, it is at least the loss of the weighted mean of the predictions.

    >>> round(tracking_regret_bound(8, 2, 0, eta=1.0, alpha=0.0), 4)  # ln 2 + 1
    1.6931
    """
    mix = mix_regret_bound(num_samples, num_predictors, switches, eta, alpha)
    return mix + eta * num_samples / 8


def optimal_alpha(num_samples: int, num_predictors: int, switches: int) -> float:
    r"""The alpha that minimises both bounds for a known number of switches.

    .. math::  \alpha^* = \min \left( 1, \frac{S}{T - 1} \cdot \frac{J}{J - 1} \right)

    A share of alpha / J returns to the predictor itself, so that the weight leaves a predictor with
    the rate of the switches, S / (T - 1).

    >>> optimal_alpha(num_samples=101, num_predictors=2, switches=5)
    0.1
    """
    _check_counts(num_samples, num_predictors, switches)
    if switches == 0 or num_predictors == 1:
        return 0.0
    rate = switches / (num_samples - 1)
    return min(1.0, rate * num_predictors / (num_predictors - 1))


def optimal_eta(num_samples: int, num_predictors: int, switches: int, alpha: float) -> float:
    r"""The eta that minimises `tracking_regret_bound`.

    .. math::  \eta^* = \sqrt{8 R_1 / T}

    :math:`R_1` is `mix_regret_bound` with eta = 1. Infinite for alpha = 0 with a switch.

    >>> round(optimal_eta(8, 2, 0, alpha=0.0) ** 2, 4)  # ln 2
    0.6931
    """
    return math.sqrt(
        8 * mix_regret_bound(num_samples, num_predictors, switches, 1.0, alpha) / num_samples
    )


class SharingRates(NamedTuple):
    """The parameters of fixed share."""

    eta: float
    alpha: float


def optimal_rates(num_predictors: int, switch_every: float) -> SharingRates:
    r"""The best eta and alpha of a long run in which the best predictor changes every n samples.

    .. math::
        \alpha = \min \left( 1, \frac{J}{(J - 1) n} \right), \qquad
        \eta = \sqrt{\frac 8 n \left[ \ln \frac J \alpha
        + (n - 1) \ln \frac{1}{1 - \alpha + \alpha / J} \right]}

    The limits of `optimal_alpha` and `optimal_eta` for T = n S and many switches S. With these
    values the mean regret per sample is at most eta / 4. One predictor has alpha = 0.

    Symbols -> here: n switch_every; J num_predictors.

    Two predictors and a switch in every second sample: alpha = 1, and eta is the root of
    8 / 2 * 2 ln 2.

    >>> found = optimal_rates(2, 2)
    >>> found.alpha, round(found.eta ** 2 / math.log(2), 4)
    (1.0, 8.0)
    """
    switch_every = positive(switch_every, "switch_every")
    if not switch_every > 1:
        raise ConfigError(f"switch_every must be above 1, got {switch_every}.")
    _check_counts(1, num_predictors, 0)
    if num_predictors == 1:
        return SharingRates(1.0, 0.0)
    alpha = min(1.0, num_predictors / ((num_predictors - 1) * switch_every))
    stay = 1 - alpha + alpha / num_predictors
    bits = math.log(num_predictors / alpha) - (switch_every - 1) * math.log(stay)
    return SharingRates(math.sqrt(8 * bits / switch_every), alpha)


def _at_most_one(value: float, name: str) -> float:
    return 0.0 if value == 0 else share(value, name)


def _check_counts(num_samples: int, num_predictors: int, switches: int) -> None:
    if num_samples < 1 or num_predictors < 1 or not 0 <= switches < num_samples:
        raise ConfigError(
            "expected at least one sample and one predictor, and fewer switches than samples, got "
            f"num_samples={num_samples}, num_predictors={num_predictors}, switches={switches}."
        )
