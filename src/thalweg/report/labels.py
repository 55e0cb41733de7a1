"""Names beside the ends of lines: short, and not on top of one another."""

from __future__ import annotations

from collections.abc import Sequence

MAX_LABEL_LENGTH = 30  # letters


def spread_apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    r"""Move labels as little as possible until no two are closer than `gap`.

    Minimises :math:`\sum_i (y_i - w_i)^2` with :math:`y_{i+1} \ge y_i + g` in the order of the
    :math:`w_i`. With :math:`z_i = y_i - i g` that is isotonic regression, and the limits clip it.
    If the labels do not fit between the limits, they share the room evenly.

    >>> spread_apart([5.0, 5.0, 9.0], gap=2.0, low=0.0, high=10.0)
    [4.0, 6.0, 9.0]
    """
    from numpy import arange, argsort, asarray, clip, empty_like
    from scipy.optimize import isotonic_regression

    w = asarray(wanted, dtype=float)
    if len(w) > 1:
        gap = min(gap, (high - low) / (len(w) - 1))
    order = argsort(w, kind="stable")
    steps = gap * arange(len(w))
    z = clip(isotonic_regression(w[order] - steps).x, low, high - steps[-1])
    y = empty_like(w)
    y[order] = z + steps
    return [float(value) for value in y]


def short_label(name: str) -> str:
    """A name short enough for the margin; of a long one, both ends, since variants differ there.

    >>> short_label("sfedpo,memory=uniform-ratio,weights=equal")
    'sfedpo,memory=…,weights=equal'
    """
    if len(name) <= MAX_LABEL_LENGTH:
        return name
    half = (MAX_LABEL_LENGTH - 1) // 2
    return f"{name[:half]}…{name[-half:]}"
