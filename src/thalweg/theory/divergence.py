"""Distances of class histograms from balanced ones (proxies for d) and from each other."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats
from thalweg.theory.inputs import as_array, one_of

Divergence = Literal["kl", "js", "l1", "l2", "l2_squared"]
SymmetricDivergence = Literal["js", "l1", "l2"]


def divergence_from_uniform(histogram: npt.ArrayLike, kind: Divergence = "kl") -> Floats:
    r"""Distance between a class histogram and a balanced one.

    .. math::
        \mathrm{l1} = \sum_c |h_c - u|, \quad
        \mathrm{l2} = \sqrt{\textstyle\sum_c (h_c - u)^2}, \quad
        \mathrm{kl} = \sum_c h_c \ln \frac{h_c}{u}, \quad
        \mathrm{js} = \tfrac12 \mathrm{kl}\big(h \,\|\, \tfrac{h+u}{2}\big)
                    + \tfrac12 \mathrm{kl}\big(u \,\|\, \tfrac{h+u}{2}\big)

    The last axis runs over the classes and disappears: (M, C) gives (M,), and (C,) gives an array
    of shape (). Counts are divided by their sum first. All kinds are 0 for a balanced histogram; in
    nats, kl ends at ln C and js below ln 2.

    Symbols, SFedPO -> here
        :math:`h`, :math:`u = 1/C`  share of each class, balanced share  -> histogram
        :math:`d_m`                 proxy of the gradient distance       -> the result

    Differs from the paper: it does not state the direction of the divergence (the other
    one, KL(u||h), is infinite as soon as a class is missing), nor whether its L2 is squared. Its
    theory needs the squared distance, which is ``l2_squared``.

    >>> divergence_from_uniform([[5, 5], [10, 0]], "l1").tolist()
    [0.0, 1.0]
    >>> round(float(divergence_from_uniform([0, 0, 1])), 6)  # ln 3
    1.098612
    """
    one_of(kind, ("kl", "js", "l1", "l2", "l2_squared"), "divergence")
    h = _normalise(histogram)  # (..., C)
    u = 1 / h.shape[-1]
    if kind == "l1":
        return np.asarray(np.abs(h - u).sum(axis=-1))
    if kind == "l2":
        return np.asarray(np.sqrt(((h - u) ** 2).sum(axis=-1)))
    if kind == "l2_squared":
        return np.asarray(((h - u) ** 2).sum(axis=-1))
    if kind == "kl":
        return _kl(h, np.full_like(h, u))
    return _js(h, np.full_like(h, u))


def divergence_between(
    histogram: npt.ArrayLike, other: npt.ArrayLike, kind: SymmetricDivergence = "js"
) -> Floats:
    r"""Symmetric distance between two class histograms.

    .. math::
        \mathrm{js} = \tfrac12 \mathrm{kl}\big(g \,\|\, \tfrac{g+h}{2}\big)
                    + \tfrac12 \mathrm{kl}\big(h \,\|\, \tfrac{g+h}{2}\big), \quad
        \mathrm{l1} = \sum_c |g_c - h_c|, \quad
        \mathrm{l2} = \sqrt{\textstyle\sum_c (g_c - h_c)^2}

    As in `divergence_from_uniform` the last axis runs over the classes, counts are divided by their
    sum, and js is in nats: ln 2 if the two have no class in common. A relative entropy is not
    offered, since it is infinite as soon as one histogram lacks a class of the other.

    >>> divergence_between([[1, 1], [3, 1]], [1, 0], "l1").tolist()
    [1.0, 0.5]
    >>> round(float(divergence_between([1, 0], [0, 5])), 6)  # ln 2
    0.693147
    """
    one_of(kind, ("js", "l1", "l2"), "divergence")
    g, h = _normalise(histogram), _normalise(other)
    if g.shape[-1] != h.shape[-1]:
        raise ConfigError(
            f"both histograms must have the same classes, got {g.shape[-1]} and {h.shape[-1]}."
        )
    g, h = np.broadcast_arrays(g, h)
    if kind == "l1":
        return np.asarray(np.abs(g - h).sum(axis=-1))
    if kind == "l2":
        return np.asarray(np.sqrt(((g - h) ** 2).sum(axis=-1)))
    return _js(g, h)


def _js(g: Floats, h: Floats) -> Floats:
    between = (g + h) / 2
    return np.asarray((_kl(g, between) + _kl(h, between)) / 2)


def _kl(p: Floats, q: Floats) -> Floats:
    """Relative entropy in nats along the last axis, with 0 ln 0 = 0; q > 0 wherever p > 0."""
    inside = (p > 0) & (q > 0)  # half of the smallest number underflows to zero
    quotient = np.divide(p, q, out=np.ones_like(p), where=inside)
    terms = np.where(inside, p * np.log(quotient), 0.0)
    return np.asarray(np.maximum(terms.sum(axis=-1), 0.0))  # rounding may leave -1e-17


def _normalise(histogram: npt.ArrayLike) -> Floats:
    counts = as_array(histogram, "histogram")
    if counts.ndim == 0 or counts.size == 0:
        raise ConfigError(
            f"histogram must have classes along its last axis, got shape {counts.shape}."
        )
    if not (counts.min() >= 0 and float(counts.max()) * counts.shape[-1] < math.inf):
        raise ConfigError(
            f"histogram must hold non-negative, finite counts, got values from "
            f"{counts.min()} to {counts.max()}."
        )
    total = counts.sum(axis=-1, keepdims=True)  # (..., 1)
    if total.min() == 0:
        raise ConfigError(
            f"every histogram must have a positive count, got {int((total == 0).sum())} that are "
            "all zero. Remove states without samples."
        )
    normalised: Floats = counts / total
    return normalised
