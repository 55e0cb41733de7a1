"""Partition with preferences for coarse classes and, within them, for fine classes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from thalweg.core.errors import require
from thalweg.core.types import Floats, Ints
from thalweg.streams.base import Setting
from thalweg.streams.splitting import SyntheticPartition


@dataclass(frozen=True)
class Pachinko(SyntheticPartition):
    r"""Pachinko allocation: draw a coarse class, then a fine class in it, by client preferences.

    .. math::
        \theta_n \sim \mathrm{Dir}(\alpha \mathbf{1}) \text{ over coarse classes}, \quad
        \phi_{n,k} \sim \mathrm{Dir}(\beta \mathbf{1}) \text{ over the fine classes of } k

    Samples are drawn without replacement. A fine class that is used up is removed and the rest of
    its coarse class is renormalised; the same holds for coarse classes. Clients get the same number
    of samples, in random order, so the last clients get the remaining samples.

    Symbols, Reddi et al. (2021), Appendix F -> here
        α  concentration over coarse classes                    -> root
        β  concentration over the fine classes of a coarse one  -> branch
    """

    needs_class_labels: ClassVar[bool] = True  # distributes classes

    root: float = 0.1
    branch: float = 10.0

    def __post_init__(self) -> None:
        for name in ("root", "branch"):
            value = getattr(self, name)
            require(0 < value < math.inf, f"{name} must be positive and finite, got {value}.")

    def assign_rows(
        self, rows: Ints, setting: Setting, num_clients: int, rng: np.random.Generator
    ) -> list[Ints]:
        require(
            setting.coarse is not None,
            "partition=pachinko needs data with coarse labels (such as cifar100), but these data "
            "have none; use partition=dirichlet.",
        )
        assert setting.coarse is not None
        tree = _Tree(rng.permutation(rows), setting.coarse, setting.labels)
        parts: list[Ints] = [rows[:0]] * num_clients
        for index, client in enumerate(rng.permutation(num_clients).tolist()):
            size = len(rows) // num_clients + (index < len(rows) % num_clients)
            parts[client] = self._take_rows(tree, size, rng)
        return parts

    def _take_rows(self, tree: _Tree, size: int, rng: np.random.Generator) -> Ints:
        """Draw the rows of one client and remove them from the tree."""
        if size == 0:
            return np.empty(0, dtype=np.int64)
        likes = rng.dirichlet(np.full(len(tree.branches), self.root))
        left = np.array([sum(map(len, leaves)) for leaves in tree.branches])
        part = []
        for leaves, count in zip(tree.branches, draw_counts(size, likes, left, rng), strict=True):
            fine = rng.dirichlet(np.full(len(leaves), self.branch))
            sizes = np.array([len(leaf) for leaf in leaves])
            for leaf, taken in enumerate(draw_counts(count, fine, sizes, rng)):
                part.append(leaves[leaf][:taken])
                leaves[leaf] = leaves[leaf][taken:]
        return np.concatenate(part)


class _Tree:
    """Unassigned rows: one list per coarse class, with one array per fine class."""

    def __init__(self, rows: Ints, coarse: Ints, fine: Ints) -> None:
        self.branches = [
            [inside[fine[inside] == c] for c in np.unique(fine[inside])]
            for inside in (rows[coarse[rows] == k] for k in np.unique(coarse[rows]))
        ]


def draw_counts(count: int, likes: Floats, left: Ints, rng: np.random.Generator) -> Ints:
    """Number of draws of each option among `count` draws, at most `left` per option.

    The distribution is that of single draws with probabilities `likes`, renormalised whenever an
    option is used up. If only options with probability zero are left, their remaining samples are
    drawn.
    """
    taken = np.zeros(len(left), dtype=np.int64)
    while missing := int(min(count, left.sum()) - taken.sum()):
        room = left - taken
        weights = np.where(room > 0, likes, 0.0)
        weights = weights if weights.sum() > 0 else room.astype(np.float64)
        taken += np.minimum(rng.multinomial(missing, weights / weights.sum()), room)
    return taken
