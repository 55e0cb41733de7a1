from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from thalweg.core.config import check_literals
from thalweg.core.types import Ints, MemoryContext
from thalweg.memory.base import renew, round_count, split_slots, take_per_class


class DrsrState(NamedTuple):
    """The number of samples seen so far, initial samples included."""

    total: int
    by_class: Ints  # (highest label so far + 1,), empty before the first tick


@dataclass(frozen=True)
class Drsr:
    r"""Dynamic-ratio selective replacement: follow the long-run distribution of the stream.

    Mode ``ratio``: the share

    .. math::  \theta_t = \frac{n_{new}}{n_{seen} + n_{new}}

    of the memory, chosen uniformly, is overwritten by new samples, so that every period of the
    stream keeps the same weight. Mode ``match``: of the held and new samples together, keep those
    whose class histogram is nearest to that of all samples seen so far (largest remainders; at
    random within a class).

    Symbols, Wang, Bian, Xu (2023) -> here
        :math:`n_{seen}, n_{new}`  -> DrsrState.total, MemoryContext.num_new

    Differs from the paper: neither its text nor its code was available; both modes are
    reconstructions.

    500 held samples, then 500 per tick: 1/2, 1/3 and 1/4 of the memory are renewed.

    >>> from thalweg.memory import make_context
    >>> policy, rng = Drsr(), np.random.default_rng(0)
    >>> state, context = policy.init(500, 500), make_context(500, 500, 500)
    >>> for tick in range(3):
    ...     state, kept = policy.keep(state, context, rng)
    ...     print((kept >= 500).sum())
    250
    167
    125
    """

    needs_class_labels: ClassVar[bool] = True  # keeps the class histogram

    mode: Literal["ratio", "match"] = "ratio"

    def __post_init__(self) -> None:
        check_literals(self)

    def init(self, capacity: int, held: int) -> DrsrState:
        return DrsrState(held, np.empty(0, dtype=np.int64))

    def keep(
        self, state: DrsrState, context: MemoryContext, rng: np.random.Generator
    ) -> tuple[DrsrState, Ints]:
        seen = _count_seen(state, context)
        if self.mode == "ratio":
            share = context.num_new / max(seen.total, 1)
            return seen, renew(context, round_count(share * context.capacity, None), rng)
        return seen, _match_classes(seen.by_class, context, rng)


def _count_seen(state: DrsrState, context: MemoryContext) -> DrsrState:
    before = state.by_class
    if not len(before):  # first tick: count the initial samples
        before = np.bincount(context.held_labels)
    new = np.bincount(context.new_labels)
    counts = np.zeros(max(len(before), len(new)), dtype=np.int64)
    counts[: len(before)] += before
    counts[: len(new)] += new
    return DrsrState(state.total + context.num_new, counts)


def _match_classes(seen_counts: Ints, context: MemoryContext, rng: np.random.Generator) -> Ints:
    """Return positions whose class counts are nearest to the shares in `seen_counts`."""
    labels = np.concatenate([context.held_labels, context.new_labels])
    num_slots = min(context.capacity, len(labels))
    if num_slots == len(labels):
        return np.arange(num_slots)
    available = np.bincount(labels, minlength=len(seen_counts))
    counts = split_slots(seen_counts / seen_counts.sum(), available, num_slots)
    return take_per_class(rng.permutation(len(labels)), labels, counts)
