from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from thalweg.core.config import check_literals
from thalweg.core.types import Floats, Ints, MemoryContext
from thalweg.memory.base import renew, round_count


class DrsrState(NamedTuple):
    """How much has come by, the client's first samples included."""

    total: int
    by_class: Ints  # (classes met so far,), empty before the first look at labels


@dataclass(frozen=True)
class Drsr:
    r"""Dynamic-ratio selective replacement: the memory follows the long run of the stream.

    ``ratio``: the share :math:`\theta_t = n_{new} / (n_{seen} + n_{new})` of the memory is
    overwritten, at random, by new samples: every period keeps the same weight.
    ``match``: of what is held and what is new, keep the samples whose class histogram is nearest to
    the one of everything seen so far (largest remainders; at random inside a class).

    Wang, Bian, Xu 2024. Its text and code were not at hand; both modes are reconstructions.

    >>> [round(theta, 6) for theta in (500 / 1000, 500 / 1500, 500 / 2000)]  # 500 held, 500 per tick
    [0.5, 0.333333, 0.25]
    """

    mode: Literal["ratio", "match"] = "ratio"

    def __post_init__(self) -> None:
        check_literals(self)

    def init(self, capacity: int, held: int) -> DrsrState:
        return DrsrState(held, np.empty(0, dtype=np.int64))

    def keep(
        self, state: DrsrState, intake: MemoryContext, rng: np.random.Generator
    ) -> tuple[DrsrState, Ints]:
        seen = _count_seen(state, intake)
        if self.mode == "ratio":
            share = intake.num_new / max(seen.total, 1)
            return seen, renew(intake, round_count(share * intake.capacity, None), rng)
        return seen, _match_classes(seen.by_class, intake, rng)


def _count_seen(state: DrsrState, intake: MemoryContext) -> DrsrState:
    before = state.by_class
    if not len(before):  # the client's first samples, whose labels nobody has counted yet
        before = np.bincount(intake.held_labels)
    new = np.bincount(intake.new_labels)
    counts = np.zeros(max(len(before), len(new)), dtype=np.int64)
    counts[: len(before)] += before
    counts[: len(new)] += new
    return DrsrState(state.total + intake.num_new, counts)


def _match_classes(wanted: Ints, intake: MemoryContext, rng: np.random.Generator) -> Ints:
    """Positions whose class counts are as near as can be to the shares in `wanted`."""
    labels = np.concatenate([intake.held_labels, intake.new_labels])
    room = min(intake.capacity, len(labels))
    if room == len(labels):
        return np.arange(room)
    there = np.bincount(labels, minlength=len(wanted))
    chosen = quotas(wanted / wanted.sum(), there, room)
    order = rng.permutation(len(labels))
    by_class = order[np.argsort(labels[order], kind="stable")]
    first = np.cumsum(there) - there
    kept = [by_class[start : start + count] for start, count in zip(first, chosen, strict=True)]
    return np.sort(np.concatenate(kept))


def quotas(shares: Floats, there: Ints, room: int) -> Ints:
    """Whole numbers that sum to `room`, near ``room * shares``, at most what is `there`.

    Largest remainders; what a class cannot fill goes to the others in proportion.

    >>> quotas(np.array([0.5, 0.3, 0.2]), np.array([9, 1, 9]), 5).tolist()
    [3, 1, 1]
    """
    counts, is_open = np.zeros(len(there), dtype=np.int64), there > 0
    while True:
        left = room - int(counts.sum())
        weight = np.where(is_open, shares, 0.0)
        if weight.sum() < 1e-12:  # classes nobody asked for must do
            weight = np.where(is_open, there, 0).astype(np.float64)
        exact = left * weight / max(weight.sum(), 1e-12)
        full = is_open & (exact >= there)
        if not full.any():
            break
        counts[full] = there[full]
        is_open &= ~full
    whole = np.floor(exact).astype(np.int64)
    order = np.argsort(whole - exact, kind="stable")  # the largest remainder first
    whole[order[: left - int(whole.sum())]] += 1
    counts += whole
    return counts
