"""Contents of a memory as weights over the latent states, and their distance from the goal."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats
from thalweg.theory.inputs import as_array, distribution, fractions, nonnegative, position, share


def mixture_step(mixture: npt.ArrayLike, state: int, ratio: float) -> Floats:
    r"""The mixture after one tick in `state`, in which the share `ratio` of the memory is renewed.

    .. math::  v \leftarrow (1 - a)\, v + a\, e_m

    Symbols, SFedPO (54) -> here
        :math:`v`  weights of the states in memory  -> mixture
        :math:`a`  renewed share                    -> ratio
        :math:`m`  state of this tick, from 0       -> state

    >>> mixture_step([0.5, 0.5], state=1, ratio=0.5).tolist()
    [0.25, 0.75]
    """
    before = distribution(mixture, "mixture")
    renewed = float(fractions([ratio], "ratio")[0])
    after: Floats = (1 - renewed) * before
    after[position(state, "state", before.size)] += renewed
    return after


def long_run_mixture(probs: npt.ArrayLike, ratios: npt.ArrayLike, budget: float) -> Floats:
    r"""Average memory contents after many ticks.

    .. math::  \bar v_m = \pi_m \alpha_m / \alpha

    It sums to 1 if the ratios use the budget, :math:`\sum_m \pi_m \alpha_m = \alpha`, which holds
    only for the probabilities for which they were computed.

    Symbols, SFedPO -> here
        :math:`\pi`, :math:`\alpha_m`, :math:`\alpha`  -> probs, ratios, budget

    >>> long_run_mixture([0.5, 0.5], [0.75, 0.25], budget=0.5).tolist()
    [0.75, 0.25]
    """
    pi = distribution(probs, "probs")
    alpha = fractions(ratios, "ratios", pi.size)
    mean: Floats = pi * alpha / share(budget, "budget")
    return mean


def mismatch(
    probs: npt.ArrayLike, ratios: npt.ArrayLike, importance: npt.ArrayLike, budget: float
) -> float:
    r"""Squared distance between the long-run memory contents and the goal.

    .. math::  \sum_m \Big(\frac{\pi_m \alpha_m}{\alpha} - w_m\Big)^2

    Symbols, SFedPO, last term of (12) -> here
        :math:`w`  weight of each state in the global objective  -> importance

    >>> mismatch([0.5, 0.5], [0.75, 0.25], [0.5, 0.5], budget=0.5)
    0.125
    """
    held = long_run_mixture(probs, ratios, budget)
    away = held - distribution(importance, "importance", held.size)
    return float(away @ away)


def kernel_mismatch(
    mixture: npt.ArrayLike, importance: npt.ArrayLike, gram: npt.ArrayLike
) -> float:
    r"""Mismatch for similar states: a squared maximum mean discrepancy.

    .. math::  (v - w)^\top K (v - w), \qquad K_{mm'} = \langle \mu_m, \mu_{m'} \rangle

    An excess of one state causes no error if it replaces another with nearly the same embedding.
    With the identity as Gram matrix the result is `mismatch`. The mixture is not normalised, so
    that both agree for ratios that miss their budget as well.

    Symbols, SFedPO (17) -> here
        :math:`v`, :math:`w`  -> mixture, importance
        :math:`\mu_m`         mean embedding of state m; only the products `gram` are needed

    >>> kernel_mismatch([1.0, 0.0], [0.5, 0.5], [[1, 0.5], [0.5, 1]])
    0.25
    """
    held = nonnegative(mixture, "mixture")
    away = held - distribution(importance, "importance", held.size)
    K = as_array(gram, "gram")
    if K.shape != (held.size, held.size):
        raise ConfigError(
            f"gram must have shape {(held.size, held.size)} like the mixture, got {K.shape}."
        )
    size = float(np.abs(K).max())
    if not size < np.inf:
        raise ConfigError("gram must be finite, got an infinite or missing entry.")
    if not np.allclose(K, K.T, rtol=0, atol=1e-9 * size):
        raise ConfigError("gram must be symmetric: entry (m, n) is the product of states m and n.")
    square = float(away @ K @ away)
    if square < -1e-9 * size:
        raise ConfigError(
            f"gram must be positive semi-definite, but these weights have square {square:g}."
        )
    return max(square, 0.0)
