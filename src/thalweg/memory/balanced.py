from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats, Ints, MemoryContext

MAX_TARGETS = 500  # targets of a regression that a client keeps to compute quantiles


class BalancedState(NamedTuple):
    """The scores of the held samples, and in a regression a random sample of all targets so far."""

    arrived: int  # samples so far, initial samples included
    scores: Floats  # (held,) empty before the first tick: drawn then
    targets: Floats  # (n,) at most MAX_TARGETS; empty with classes
    target_keys: Floats  # (n,) random numbers; the targets with the smallest ones stay


@dataclass(frozen=True)
class Balanced:
    r"""Keep the same number of samples of each class, chosen from held and new samples.

    Capacity that a class cannot fill goes to the other classes in equal parts. Within a class the
    policy keeps the samples with the highest scores,

    .. math::
        s_i = \ln w_i + G_i, \qquad w_i = 2^{t_i / (h n)}, \qquad G_i \sim \text{Gumbel}(0, 1)

    which is a random sample without replacement in which sample i has weight :math:`w_i`: a sample
    that arrived h memories later than another one has the double weight. Scores are drawn once, so
    that the choice does not depend on how many samples arrive at a time. ``half_life=none`` keeps a
    uniform sample of the whole past of each class (a reservoir per class), a half-life near 0 the
    newest samples.

    In a regression, the classes are the quantile bins of all targets that have arrived at the
    client so far (of a uniform sample of 500 of them). A target with several numbers counts as
    their mean.

    Symbols
        n            -> MemoryContext.capacity
        h            -> half_life
        :math:`t_i`  number of samples that had arrived before sample i at this client

    Six slots, three classes with five, four and one sample: the quotas are equal, 2 each, and the
    slot that class 2 cannot fill goes to class 0 or 1. With a short half-life the newest samples of
    each class stay: positions 6, 7 and 8 of class 0, 4 and 5 of class 1, and 9 of class 2.

    >>> from thalweg.memory import make_context
    >>> labels = [0, 0, 1, 1, 1, 1, 0, 0, 0, 2]
    >>> context = make_context(6, 4, 6, held_labels=labels[:4], new_labels=labels[4:])
    >>> policy, rng = Balanced(half_life=1e-3), np.random.default_rng(0)
    >>> state, kept = policy.keep(policy.init(6, 4), context, rng)
    >>> kept.tolist()
    [4, 5, 6, 7, 8, 9]
    """

    uses_targets: ClassVar[bool] = True  # reads the targets of a regression
    regression_fields: ClassVar[tuple[str, ...]] = ("bins",)  # have no effect with classes

    half_life: float | None = 1.0
    """Arrivals, in multiples of the capacity, after which a sample has half the weight of a new
    one; none: all samples of a class have the same weight."""
    bins: int = 10
    """Number of quantile bins of the target in a regression."""

    def __post_init__(self) -> None:
        check_ranges(self, half_life="[1e-3, inf) or none", bins="[1, 1000]")

    def init(self, capacity: int, held: int) -> BalancedState:
        return BalancedState(held, np.empty(0), np.empty(0), np.empty(0))

    def keep(
        self, state: BalancedState, context: MemoryContext, rng: np.random.Generator
    ) -> tuple[BalancedState, Ints]:
        scores = self._score(state, context, rng)
        if context.new_targets is not None:
            state = _sample_targets(state, context, rng)
        state = state._replace(arrived=state.arrived + context.num_new, scores=scores)
        if len(scores) <= context.capacity:
            return state, np.arange(len(scores))
        if context.new_targets is None:
            labels = np.concatenate([context.held_labels, context.new_labels])
        else:
            labels = self._find_bins(state, context)
        kept = choose_balanced(labels, scores, context.capacity)
        return state._replace(scores=scores[kept]), kept

    def _score(
        self, state: BalancedState, context: MemoryContext, rng: np.random.Generator
    ) -> Floats:
        """Return (held + num_new,) the scores of all samples."""
        held = state.scores if len(state.scores) else rng.gumbel(size=context.held)
        new = rng.gumbel(size=context.num_new)
        if self.half_life is not None:
            times = np.arange(state.arrived, state.arrived + context.num_new)
            new += times * (math.log(2) / (self.half_life * context.capacity))
        return np.concatenate([held, new])

    def _find_bins(self, state: BalancedState, context: MemoryContext) -> Ints:
        """Return (held + num_new,) the quantile bin of each target."""
        targets = _read_targets(context)
        if not len(state.targets):
            return np.zeros(len(targets), dtype=np.int64)
        edges = np.quantile(state.targets, np.arange(1, self.bins) / self.bins)
        return np.searchsorted(edges, targets, side="right").astype(np.int64)


def choose_balanced(labels: Ints, scores: Floats, capacity: int) -> Ints:
    """Return the positions, ascending, of at most `capacity` samples with equal class counts.

    The best sample of each class is kept first, then the second best ones, and so on. If the last
    ones do not all fit, those with the highest scores are kept.

    >>> choose_balanced(np.array([0, 0, 0, 1]), np.array([1.0, 3.0, 2.0, 0.0]), 3).tolist()
    [1, 2, 3]
    """
    if len(labels) <= capacity:
        return np.arange(len(labels))
    by_class = np.lexsort((-scores, labels))
    counts = np.bincount(labels)
    rank = np.empty(len(labels), dtype=np.int64)  # within the class; 0: the highest score
    rank[by_class] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(np.lexsort((-scores, rank))[:capacity])


def _read_targets(context: MemoryContext) -> Floats:
    """Return (held + num_new,) the targets of a regression as one number per sample."""
    assert context.held_targets is not None
    assert context.new_targets is not None
    targets = np.concatenate([context.held_targets, context.new_targets]).astype(np.float64)
    return targets.reshape(len(targets), -1).mean(axis=1) if targets.ndim > 1 else targets


def _sample_targets(
    state: BalancedState, context: MemoryContext, rng: np.random.Generator
) -> BalancedState:
    """Add the targets of new samples, in the first tick also of held ones, to the sample."""
    targets = _read_targets(context)
    fresh = targets[context.held :] if len(state.targets) else targets
    targets = np.concatenate([state.targets, fresh])
    keys = np.concatenate([state.target_keys, rng.random(len(fresh))])
    kept = np.sort(np.argsort(keys, kind="stable")[:MAX_TARGETS])
    return state._replace(targets=targets[kept], target_keys=keys[kept])
