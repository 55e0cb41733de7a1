"""How far the classes of a state are from balanced: the proxies for the heterogeneity bound d."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats
from thalweg.theory.inputs import array_of, one_of

Divergence = Literal["kl", "js", "l1", "l2", "l2_squared"]


def divergence_from_uniform(histogram: npt.ArrayLike, kind: Divergence = "kl") -> Floats:
    r"""Distance between a class histogram and equally many samples of each class.

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

    Differs from the paper: it does not say which direction of the divergence it means (the other
    one, KL(u||h), is infinite as soon as a class is missing), nor whether its L2 is squared. Its
    theory wants the squared distance, which is ``l2_squared``.

    >>> divergence_from_uniform([[5, 5], [10, 0]], "l1").tolist()
    [0.0, 1.0]
    >>> round(float(divergence_from_uniform([0, 0, 1])), 6)  # ln 3
    1.098612
    """
    one_of(kind, ("kl", "js", "l1", "l2", "l2_squared"), "divergence")
    h = _normalised(histogram)  # (..., C)
    u = 1 / h.shape[-1]
    if kind == "l1":
        return np.asarray(np.abs(h - u).sum(axis=-1))
    if kind == "l2":
        return np.asarray(np.sqrt(((h - u) ** 2).sum(axis=-1)))
    if kind == "l2_squared":
        return np.asarray(((h - u) ** 2).sum(axis=-1))
    if kind == "kl":
        return _kl(h, np.full_like(h, u))
    between = (h + u) / 2
    return np.asarray((_kl(h, between) + _kl(np.full_like(h, u), between)) / 2)


def _kl(p: Floats, q: Floats) -> Floats:
    """Relative entropy in nats along the last axis; 0 ln 0 = 0, and q has no zeros."""
    inside = p > 0
    terms = np.where(inside, p * np.log(np.where(inside, p / q, 1.0)), 0.0)
    return np.asarray(np.maximum(terms.sum(axis=-1), 0.0))  # rounding may leave -1e-17


def _normalised(histogram: npt.ArrayLike) -> Floats:
    counts = array_of(histogram, "histogram")
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
            f"every histogram must count something, got {int((total == 0).sum())} that are all "
            "zero. Leave states without samples out."
        )
    normalised: Floats = counts / total
    return normalised
