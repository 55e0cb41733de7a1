r"""Drawing several different items with unequal probabilities.

Drawing one by one from `probs` and renormalising does *not* include item i with probability
``size * probs[i]``. Systematic drawing does, as long as that is at most one.

Symbols -> here
    :math:`a`     -> probs, (n,) with sum one
    :math:`|S|`   -> size, the number of items drawn
    :math:`\pi`   -> inclusion, (n,) with sum `size`
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Ints

POSITIVE = 1e-12  # smaller probabilities are zeros of a solver
CERTAIN = 1 - 1e-9  # above this, rounding could make two points fall on one item


def draw_successive(probs: Floats, size: int, rng: np.random.Generator) -> Ints:
    """Draw one by one without replacement, each time with the remaining probabilities renormalised.

    Implemented as a race: item i finishes after an exponential time of rate ``probs[i]``, and the
    first `size` items are drawn. The distribution is that of NumPy's ``choice(p=probs,
    replace=False)``. Returns positions in ascending order.

    >>> draw_successive(np.array([0.0, 0.5, 0.5, 0.0]), 2, np.random.default_rng(0)).tolist()
    [1, 2]
    """
    drawable = _check_drawable(probs, size)
    times = rng.exponential(size=len(drawable)) / probs[drawable]
    return np.sort(drawable[np.argsort(times, kind="stable")[:size]])


def draw_systematic(probs: Floats, size: int, rng: np.random.Generator) -> Ints:
    """Draw with exactly the inclusion probabilities of `capped_inclusion`.

    The items are put on a line in random order, each as long as its inclusion probability. `size`
    points at distance one, with a common random start, select the items they fall on. Returns
    positions in ascending order.

    Item 0 has inclusion probability 2 * 0.5 = 1:

    >>> draw_systematic(np.array([0.5, 0.25, 0.25]), 2, np.random.default_rng(0)).tolist()[0]
    0
    """
    inclusion = capped_inclusion(probs, size)
    certain = np.flatnonzero(inclusion == 1.0)
    others = rng.permutation(np.flatnonzero((inclusion > 0) & (inclusion < 1)))
    left = size - len(certain)
    if left == 0:
        return certain
    ends = np.cumsum(inclusion[others])
    points = (rng.random() + np.arange(left)) * (ends[-1] / left)
    hits = np.minimum(np.searchsorted(ends, points, side="right"), len(others) - 1)
    return np.sort(np.concatenate([certain, others[hits]]))


DRAWS: dict[str, Callable[[Floats, int, np.random.Generator], Ints]] = {
    "successive": draw_successive,
    "systematic": draw_systematic,
}


def capped_inclusion(probs: Floats, size: int) -> Floats:
    r"""Return :math:`\pi_i = \min(1, |S| a_i)`; the excess over 1 goes to the others in proportion.

    >>> capped_inclusion(np.array([0.5, 0.3, 0.2]), 2).tolist()
    [1.0, 0.6, 0.4]
    >>> capped_inclusion(np.array([0.7, 0.2, 0.1]), 2).round(6).tolist()
    [1.0, 0.666667, 0.333333]
    """
    drawable = _check_drawable(probs, size)
    if len(drawable) == size:
        return (probs > POSITIVE).astype(np.float64)
    inclusion = np.where(probs > POSITIVE, probs, 0.0)
    is_certain = np.zeros(len(probs), dtype=bool)
    while True:
        open_items = inclusion[~is_certain]
        scale = (size - is_certain.sum()) / open_items.sum()
        beyond = ~is_certain & (inclusion * scale >= CERTAIN)
        if not beyond.any():
            return np.where(is_certain, 1.0, inclusion * scale)
        is_certain |= beyond


def mix_with_uniform(probs: Floats, share: float) -> Floats:
    """Mix `share` of the uniform distribution into `probs`, so that every item can be drawn.

    >>> mix_with_uniform(np.array([0.6, 0.4, 0.0, 0.0, 0.0]), 0.05).round(6).tolist()
    [0.58, 0.39, 0.01, 0.01, 0.01]
    """
    return (1 - share) * probs + share / len(probs)


def fill_uniformly(probs: Floats, size: int, rng: np.random.Generator) -> Ints:
    """Take all items of positive probability, fewer than `size`, and draw the rest uniformly.

    >>> fill_uniformly(np.array([0.6, 0.4, 0.0]), 3, np.random.default_rng(0)).tolist()
    [0, 1, 2]
    """
    positive = np.flatnonzero(probs > POSITIVE)
    rest = np.flatnonzero(probs <= POSITIVE)
    return np.sort(
        np.concatenate([positive, rng.choice(rest, size - len(positive), replace=False)])
    )


def num_positive(probs: Floats) -> int:
    """Return how many items have a positive probability.

    >>> num_positive(np.array([0.6, 0.4, 0.0]))
    2
    """
    return int(np.count_nonzero(probs > POSITIVE))


def _check_drawable(probs: Floats, size: int) -> Ints:
    """Return the positions of positive probability, or raise if they are fewer than `size`."""
    drawable = np.flatnonzero(probs > POSITIVE)
    if not 1 <= size <= len(drawable):
        raise ConfigError(
            f"cannot draw {size} different items: {len(drawable)} of {len(probs)} probabilities "
            "are positive. Use mix_with_uniform or fill_uniformly first, or draw fewer items."
        )
    return drawable
