"""Two groups of clients that share some labels, with Dirichlet class mixes inside each group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats, Ints
from thalweg.streams.base import Setting
from thalweg.streams.label_partitions import (
    LabelPartition,
    check_enough,
    half_size,
    label_pools,
    split_labels,
)


@dataclass(frozen=True)
class Overlap(LabelPartition):
    r"""Two groups of clients with their own and shared labels.

    Dirichlet class mixes inside each group.

    Every client of a group gets the same number of samples (the first clients one more if
    necessary) and draws a mix of its group's labels from :math:`\mathrm{Dir}(a \mathbf{1})`.
    Clients draw in turn, sample by sample: a label from the mix, then the next sample of that
    label. If no sample is left, the draw is repeated up to 3 C + 5 times; after that any remaining
    label is used. The last clients of a group therefore get the remaining samples.

    Samples of shared labels are assigned in both groups: **a sample may belong to one client of
    each group**. Labels that the formula leaves over are not used.

    Symbols, Chang et al. and their code -> here
        o  share of a group's labels that the other group has too  -> overlap
        α  concentration of the mixes                              -> concentration
    """

    overlap: float = 0.0
    concentration: float = 0.3

    def __post_init__(self) -> None:
        check_ranges(self, overlap="[0, 1)", concentration="(0, inf)")

    def assign_rows(
        self, rows: Ints, setting: Setting, num_clients: int, rng: np.random.Generator
    ) -> list[Ints]:
        pools = label_pools(rows, setting, rng)
        size = half_size(num_clients, self)
        parts: list[Ints] = []
        for mine in split_labels(len(pools), self.overlap):
            group = [rng.permutation(pools[label]) for label in mine]
            check_enough(group, size, self)
            parts += self._split_group(group, size, rng)
        return parts

    def _split_group(self, pools: list[Ints], size: int, rng: np.random.Generator) -> list[Ints]:
        """Samples of every client of one group."""
        begins = np.cumsum([0, *(len(pool) for pool in pools)])
        rows, left = np.concatenate(pools), np.diff(begins)
        mixes = rng.dirichlet(np.full(len(pools), self.concentration), size)
        parts = []
        for client, mix in enumerate(mixes):
            quota = len(rows) // size + (client < len(rows) % size)
            counts = draw_with_retries(quota, mix, left, rng)
            nexts = begins[1:] - left  # first unused row of every pool
            spans = zip(nexts, nexts + counts, strict=True)
            parts.append(np.concatenate([rows[start:stop] for start, stop in spans]))
            left = left - counts
        return parts


def draw_with_retries(count: int, mix: Floats, left: Ints, rng: np.random.Generator) -> Ints:
    """(C,) number of draws of each label among `count` draws, at most `left` per label.

    Each draw follows `mix`. If no sample of its label is left, the draw is repeated up to 3 C + 5
    times, then any remaining label is drawn uniformly. Draws are vectorised as long as no label is
    used up.
    """
    taken = np.zeros_like(left)
    while missing := int(min(count, left.sum()) - taken.sum()):
        room = left - taken
        is_left = room > 0
        within = mix[is_left].sum()
        luckless = max(1 - within, 0.0) ** (3 * len(mix) + 5)
        chances = np.where(is_left, luckless / is_left.sum(), 0.0)
        if within > 0:
            chances += np.where(is_left, mix, 0.0) / within * (1 - luckless)
        drawn = rng.choice(len(mix), missing, p=chances / chances.sum())
        beyond = [
            np.flatnonzero(drawn == label)[room[label] :] for label in np.flatnonzero(is_left)
        ]
        first_beyond = min([missing, *(int(draws[0]) for draws in beyond if len(draws))])
        taken += np.bincount(drawn[:first_beyond], minlength=len(mix))
    return taken
