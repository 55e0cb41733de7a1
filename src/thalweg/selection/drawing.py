"""Drawing several different things with unequal probabilities, and how likely each one then is.

Drawing one by one from `probs` and renormalising does *not* include thing i with probability
``size * probs[i]``; systematic drawing does, as long as that is at most one.

Symbols, here
    :math:`a`    -> probs, (n,) summing to one       :math:`|S|`  -> size, how many are drawn
    :math:`\\pi`  -> inclusion, (n,) summing to size
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError, UnknownName
from thalweg.core.types import Floats, Ints

POSITIVE = 1e-12  # a probability below this is a solver's zero
CERTAIN = 1 - 1e-9  # beyond this, rounding could let two points fall on one thing
NODES = 4000  # of the integral over time; the error is that of float64


def draw_successive(probs: Floats, size: int, rng: np.random.Generator) -> Ints:
    """One by one without putting back, each time with the remaining probabilities renormalised.

    As a race: thing i arrives after an exponential time of rate ``probs[i]``; the first `size` are
    taken. The same law as NumPy's ``choice(p=probs, replace=False)``, in one pass.

    >>> draw_successive(np.array([0.0, 0.5, 0.5, 0.0]), 2, np.random.default_rng(0)).tolist()
    [1, 2]
    """
    can = _check_drawable(probs, size)
    times = rng.exponential(size=len(can)) / probs[can]
    return np.sort(can[np.argsort(times, kind="stable")[:size]])


def draw_systematic(probs: Floats, size: int, rng: np.random.Generator) -> Ints:
    """With exactly the inclusion probabilities of `capped_inclusion`.

    Things lie on a line in random order, each as long as its inclusion probability; `size` points at
    distance one, with a common random start, pick those they fall on.

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
    places = np.minimum(np.searchsorted(ends, points, side="right"), len(others) - 1)
    return np.sort(np.concatenate([certain, others[places]]))


DRAWS: dict[str, Callable[[Floats, int, np.random.Generator], Ints]] = {
    "successive": draw_successive,
    "systematic": draw_systematic,
}


def capped_inclusion(probs: Floats, size: int) -> Floats:
    r""":math:`\pi_i = \min(1, |S| a_i)`; what is cut off goes to the others, in proportion.

    >>> capped_inclusion(np.array([0.5, 0.3, 0.2]), 2).tolist()
    [1.0, 0.6, 0.4]
    >>> capped_inclusion(np.array([0.7, 0.2, 0.1]), 2).round(6).tolist()
    [1.0, 0.666667, 0.333333]
    """
    can = _check_drawable(probs, size)
    if len(can) == size:
        return (probs > POSITIVE).astype(np.float64)
    inclusion = np.where(probs > POSITIVE, probs, 0.0)
    is_certain = np.zeros(len(probs), dtype=bool)
    while True:
        open_ones = inclusion[~is_certain]
        scale = (size - is_certain.sum()) / open_ones.sum()
        beyond = ~is_certain & (inclusion * scale >= CERTAIN)
        if not beyond.any():
            return np.where(is_certain, 1.0, inclusion * scale)
        is_certain |= beyond


def successive_inclusion(probs: Floats, size: int) -> Floats:
    r"""How likely each thing is among `size` drawn one by one, to about ten digits.

    .. math::  \pi_i = \int_0^\infty a_i e^{-a_i t} \, P(\text{fewer than } |S| \text{ others before } t) \, dt

    in the race of `draw_successive`, by the trapezoidal rule in :math:`\log t`. Takes n² |S| passes over
    a few thousand nodes: meant for looking at a small federation, not for every round.

    >>> successive_inclusion(np.array([0.5, 0.3, 0.2]), 2).round(6).tolist()
    [0.839286, 0.675, 0.485714]
    """
    can = _check_drawable(probs, size)
    rates = probs[can]
    log_time, step = np.linspace(-30.0, np.log(60 / rates.min()), NODES, retstep=True)
    time = np.exp(log_time)
    arrived = -np.expm1(-rates[:, None] * time)  # (n, nodes)
    inclusion = np.zeros(len(probs))
    for i, rate in enumerate(rates):
        few = _fewer_than(size, np.delete(arrived, i, axis=0))
        inclusion[can[i]] = float((rate * np.exp(-rate * time) * few * time).sum() * step)
    return np.minimum(inclusion, 1.0)


def inclusion_probabilities(probs: Floats, size: int, draw: str = "successive") -> Floats:
    """(n,) how likely each thing is to be drawn by a draw of that name.

    >>> inclusion_probabilities(np.array([0.5, 0.3, 0.2]), 2, "systematic").tolist()
    [1.0, 0.6, 0.4]
    """
    known = {"successive": successive_inclusion, "systematic": capped_inclusion}
    if draw not in known:
        raise UnknownName("draw", draw, known)
    return known[draw](probs, size)


def mix_with_uniform(probs: Floats, share: float) -> Floats:
    """A little of the uniform distribution, so that everything can be drawn.

    >>> mix_with_uniform(np.array([0.6, 0.4, 0.0, 0.0, 0.0]), 0.05).round(6).tolist()
    [0.58, 0.39, 0.01, 0.01, 0.01]
    """
    return (1 - share) * probs + share / len(probs)


def fill_uniformly(probs: Floats, size: int, rng: np.random.Generator) -> Ints:
    """Everything of positive probability, fewer than `size`, and the rest uniformly at random.

    >>> fill_uniformly(np.array([0.6, 0.4, 0.0]), 3, np.random.default_rng(0)).tolist()
    [0, 1, 2]
    """
    sure = np.flatnonzero(probs > POSITIVE)
    rest = np.flatnonzero(probs <= POSITIVE)
    return np.sort(np.concatenate([sure, rng.choice(rest, size - len(sure), replace=False)]))


def num_positive(probs: Floats) -> int:
    """How many things can be drawn at all."""
    return int(np.count_nonzero(probs > POSITIVE))


def _check_drawable(probs: Floats, size: int) -> Ints:
    can = np.flatnonzero(probs > POSITIVE)
    if not 1 <= size <= len(can):
        raise ConfigError(
            f"cannot draw {size} different ones: {len(can)} of {len(probs)} probabilities are "
            "positive. Mix in the uniform distribution, or complete uniformly."
        )
    return can


def _fewer_than(size: int, arrived: npt.NDArray[np.float64]) -> Floats:
    """(nodes,) P(fewer than `size` of the others have arrived); (n - 1, nodes) each one's own."""
    counts = np.zeros((size, arrived.shape[1]))  # P(exactly k of those seen so far), k < size
    counts[0] = 1.0
    for chance in arrived:
        moved = counts * chance
        counts -= moved
        counts[1:] += moved[:-1]
    fewer: Floats = counts.sum(0)
    return fewer
