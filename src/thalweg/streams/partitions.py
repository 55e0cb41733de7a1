"""Partitions: the assignment of samples to clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.errors import require
from thalweg.core.types import Ints
from thalweg.streams.base import Setting
from thalweg.streams.label_partitions import Distinct, Half, PartialOverlap, TwoShard
from thalweg.streams.overlap import Overlap
from thalweg.streams.pachinko import Pachinko
from thalweg.streams.splitting import SyntheticPartition, make_imbalanced, top_up


class Partition(Protocol):
    """Protocol of a partition: a frozen dataclass. No client receives a row twice.

    No row belongs to two clients, unless the partition documents it, as `Overlap` does.
    """

    @property
    def is_natural(self) -> bool:
        """True if the clients are those of the data set."""
        ...

    def assign_rows(
        self, rows: Ints, setting: Setting, num_clients: int, rng: np.random.Generator
    ) -> list[Ints]:
        """One array of rows per client, possibly empty, taken from `rows`."""
        ...


@dataclass(frozen=True)
class Even(SyntheticPartition):
    """All clients get the same number of samples, drawn at random (i.i.d.).

    The first clients have one sample more if the samples do not divide evenly.
    """

    def assign_rows(
        self, rows: Ints, setting: Setting, num_clients: int, rng: np.random.Generator
    ) -> list[Ints]:
        return np.array_split(rng.permutation(rows), num_clients)


@dataclass(frozen=True)
class Groups:
    """The clients of the data set: writers, speakers, devices."""

    @property
    def is_natural(self) -> bool:
        return True

    def assign_rows(
        self, rows: Ints, setting: Setting, num_clients: int, rng: np.random.Generator
    ) -> list[Ints]:
        group = require_groups(setting)[rows]
        by_client = rows[np.argsort(group, kind="stable")]
        return np.split(by_client, np.cumsum(np.bincount(group, minlength=num_clients))[:-1])


@dataclass(frozen=True)
class Dirichlet(SyntheticPartition):
    r"""Every class is distributed over the clients by its own Dirichlet draw.

    .. math::  s_c \sim \mathrm{Dir}(a \mathbf{1}_N)

    For small :math:`a` each class belongs to a few clients, and client sizes differ widely. Clients
    may be empty; those below `min_size` are filled from the largest ones. The assignment of latent
    states (`splitting.split_by_dirichlet`) differs: there no state takes more than its fair share.

    Symbols, Hsu et al. (2019), Song et al. (DPCS) -> here
        α  concentration of the draw                         -> concentration
        ρ  size of a class relative to the class before it   -> imbalance
    """

    needs_class_labels: ClassVar[bool] = True  # distributes classes

    concentration: float = 0.4
    imbalance: float | None = None
    """Class k keeps `imbalance` ** k times as many samples as class 0, which keeps as many as the
    smallest class has; other samples are not used. None: classes are unchanged.
    """
    min_size: int = 0
    """Minimum number of samples per client."""

    def __post_init__(self) -> None:
        check_ranges(
            self, concentration="(0, inf)", imbalance="(0, 1] or none", min_size="[0, inf)"
        )

    def assign_rows(
        self, rows: Ints, setting: Setting, num_clients: int, rng: np.random.Generator
    ) -> list[Ints]:
        labels = setting.labels
        if self.imbalance is not None:
            rows = make_imbalanced(rows, labels, self.imbalance, rng)
        require(
            len(rows) >= num_clients * self.min_size,
            f"{len(rows)} samples cannot give {num_clients} clients at least {self.min_size} each; "
            "use fewer clients or a smaller min_size.",
        )
        parts: list[list[int]] = [[] for _ in range(num_clients)]
        for c in np.unique(labels[rows]):
            mine = rng.permutation(rows[labels[rows] == c])
            shares = rng.dirichlet(np.full(num_clients, self.concentration))
            cuts = np.round(np.cumsum(shares)[:-1] * len(mine)).astype(int)
            for part, piece in zip(parts, np.split(mine, cuts), strict=True):
                part.extend(piece.tolist())
        top_up(parts, self.min_size, rng)
        return [np.array(part, dtype=np.int64) for part in parts]


PARTITIONS = {
    "dirichlet": Dirichlet,
    "pachinko": Pachinko,
    "groups": Groups,
    "even": Even,
    "overlap": Overlap,
    "two-shard": TwoShard,
    "half": Half,
    "partial-overlap": PartialOverlap,
    "distinct": Distinct,
}


def require_groups(setting: Setting) -> Ints:
    """Client column of the data set; raises an error if there is none."""
    require(
        setting.client is not None,
        "partition=groups needs data with a client column, but these data have none; use "
        "partition=dirichlet or partition=even with num_clients.",
    )
    assert setting.client is not None
    return setting.client
