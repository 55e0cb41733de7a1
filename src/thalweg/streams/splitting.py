"""Assignment of samples to latent states."""

from __future__ import annotations

import numpy as np

from thalweg.core.errors import require
from thalweg.core.types import Ints


class SyntheticPartition:
    """Artificial clients of a partition."""

    @property
    def is_natural(self) -> bool:
        return False


def stratified_parts(labels: Ints, num_parts: int, rng: np.random.Generator) -> list[Ints]:
    """Split all rows into parts of equal size with the same class mix, as far as possible.

    >>> parts = stratified_parts(np.array([0, 0, 1, 1]), 2, np.random.default_rng(0))
    >>> [np.bincount(np.array([0, 0, 1, 1])[part]).tolist() for part in parts]
    [[1, 1], [1, 1]]
    """
    by_class = [rng.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]
    dealt = np.concatenate(by_class)  # one class after the other, distributed in turn
    return [dealt[part::num_parts] for part in range(num_parts)]


def split_by_dirichlet(
    rows: Ints,
    labels: Ints,
    num_states: int,
    concentration: float,
    min_size: int,
    rng: np.random.Generator,
) -> list[Ints]:
    r"""Distribute each class over the states by a Dirichlet draw.

    .. math::  p_c \sim \mathrm{Dir}(a \mathbf{1})  \quad\text{over the states still open}

    A state that already holds its fair share (rows / states) receives no further class, as in the
    partition of FedMA; otherwise a small :math:`a` leaves some states empty and others very large.
    Difference: FedMA repeats the whole draw until the smallest state has ten rows, which may never
    happen; here states below `min_size` are filled from the largest ones.
    """
    require(
        len(rows) >= num_states * min_size,
        f"{len(rows)} samples cannot give {num_states} states at least {min_size} each; "
        "use fewer states, fewer clusters or a smaller min_state_size.",
    )
    fair = len(rows) / num_states
    states: list[list[int]] = [[] for _ in range(num_states)]
    for c in rng.permutation(np.unique(labels[rows])):
        mine = rng.permutation(rows[labels[rows] == c])
        is_open = [m for m in range(num_states) if len(states[m]) < fair]
        shares = rng.dirichlet(np.full(len(is_open), concentration))
        cuts = np.round(np.cumsum(shares)[:-1] * len(mine)).astype(int)
        for m, piece in zip(is_open, np.split(mine, cuts), strict=True):
            states[m].extend(piece.tolist())
    top_up(states, min_size, rng)
    return [np.sort(np.array(state, dtype=np.int64)) for state in states]


def top_up(parts: list[list[int]], min_size: int, rng: np.random.Generator) -> None:
    """Move rows from the largest part to the smallest until all have `min_size`.

    Modifies the lists.
    """
    while (smallest := min(parts, key=len)) is not None and len(smallest) < min_size:
        largest = max(parts, key=len)
        smallest.append(largest.pop(int(rng.integers(len(largest)))))


def label_prior_pools(
    rows: Ints,
    labels: Ints,
    num_states: int,
    concentration: float,
    min_size: int,
    rng: np.random.Generator,
) -> list[Ints]:
    r"""Give each state its own class mix :math:`\sim \mathrm{Dir}(a\mathbf{1}_C)`.

    Rows with replacement.

    States may share samples, and all states have the same size.
    """
    require(len(rows) >= 1, "a cluster without samples cannot have states; use fewer clusters.")
    size = max(min_size, len(rows) // num_states)
    by_class = [rows[labels[rows] == c] for c in np.unique(labels[rows])]
    pools = []
    for _ in range(num_states):
        counts = rng.multinomial(size, rng.dirichlet(np.full(len(by_class), concentration)))
        drawn = [rng.choice(pool, n) for pool, n in zip(by_class, counts, strict=True)]
        pools.append(np.sort(np.concatenate(drawn)))
    return pools


def imbalanced_counts(sizes: Ints, ratio: float, first: int | None = None) -> Ints:
    r"""(C,) number of samples of each class: :math:`\lfloor f \rho^k \rfloor`, at most its size.

    `first` (f) is the size of the smallest non-empty class, unless given.

    >>> imbalanced_counts(np.array([90, 50, 80]), 0.5).tolist()
    [50, 25, 12]
    """
    if first is None:
        first = int(sizes[sizes > 0].min()) if sizes.any() else 0
    wanted = np.floor(first * ratio ** np.arange(len(sizes)) + 1e-9)  # 1e-9: floor(6400 - 1e-12)
    kept: Ints = np.minimum(wanted, sizes).astype(np.int64)
    return kept


def make_imbalanced(rows: Ints, labels: Ints, ratio: float, rng: np.random.Generator) -> Ints:
    """Random subset of the rows in which every class has fewer rows than the class before it."""
    keep = imbalanced_counts(np.bincount(labels[rows]), ratio)
    kept = [rng.permutation(rows[labels[rows] == c])[:count] for c, count in enumerate(keep)]
    return np.concatenate([*kept, rows[:0]])
