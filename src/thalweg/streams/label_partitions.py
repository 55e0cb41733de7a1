"""Label layouts for clients that take turns: who has which labels, and what two groups share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.errors import require
from thalweg.core.types import Ints
from thalweg.streams.base import Setting
from thalweg.streams.splitting import SyntheticPartition


class LabelPartition(SyntheticPartition):
    """A partition that gives every client, or every group of them, labels of its own.

    Labels are those that occur, in the order of their numbers. Groups are blocks of ids: the first half of the
    clients and the second, as `schedules.Alternating` has them.
    """


@dataclass(frozen=True)
class TwoShard(LabelPartition):
    """Every label is cut in two, and every client has two halves, of different labels.

    With more labels than clients, labels go together: 100 labels of 10 clients are 10 bundles of 10, so that a
    client has half of 20 labels. Which ones is drawn.
    """

    def assign_rows(
        self, rows: Ints, setting: Setting, num_clients: int, rng: np.random.Generator
    ) -> list[Ints]:
        pools = label_pools(rows, setting, rng)
        each = labels_per_client(len(pools), num_clients, self)
        require(num_clients > 1, "two halves of a label need two clients, got num_clients=1.")
        bundles = rng.permutation(len(pools)).reshape(num_clients, each)
        takers = rng.permutation(num_clients)
        others = rng.permutation(num_clients)
        while (takers == others).any():  # a client must not have both halves
            others = rng.permutation(num_clients)
        hands: list[list[Ints]] = [[] for _ in range(num_clients)]
        for bundle, one, other in zip(bundles, takers.tolist(), others.tolist(), strict=True):
            for label in bundle.tolist():
                middle = len(pools[label]) // 2
                hands[one].append(pools[label][:middle])
                hands[other].append(pools[label][middle:])
        return [np.concatenate(hand) for hand in hands]


@dataclass(frozen=True)
class Half(LabelPartition):
    """The first half of the clients shares the first half of the labels evenly, the others the rest."""

    def assign_rows(
        self, rows: Ints, setting: Setting, num_clients: int, rng: np.random.Generator
    ) -> list[Ints]:
        pools = label_pools(rows, setting, rng)
        size = half_size(num_clients, self)
        first, second = split_labels(len(pools), 0.0)
        return [
            *split_evenly([pools[label] for label in first], size, self),
            *split_evenly([pools[label] for label in second], size, self),
        ]


@dataclass(frozen=True)
class PartialOverlap(LabelPartition):
    """Two halves of the clients, each with some of the labels; samples of labels that both have are halved.

    Unlike with `Overlap`, no sample belongs to two clients, and inside a half everybody has the same mix.
    """

    labels: float = 0.6
    """Share of all labels that a half of the clients has."""
    shared: float = 0.2
    """Share of all labels that both have."""

    def __post_init__(self) -> None:
        check_ranges(self, labels="(0, 1]", shared="[0, 1]")
        require(
            self.shared <= self.labels and 2 * self.labels - self.shared <= 1 + 1e-9,
            f"two sets of {self.labels} of the labels cannot share {self.shared} of them; labels - shared must lie "
            "between 0 and (1 - shared) / 2.",
        )

    def assign_rows(
        self, rows: Ints, setting: Setting, num_clients: int, rng: np.random.Generator
    ) -> list[Ints]:
        pools = label_pools(rows, setting, rng)
        size = half_size(num_clients, self)
        count, both = (floor_int(share * len(pools)) for share in (self.labels, self.shared))
        require(count > 0, f"{self.labels} of {len(pools)} labels is less than one of them.")
        own = count - both
        middles = {label: len(pools[label]) // 2 for label in range(own, count)}
        first = [pools[label][: middles.get(label)] for label in range(count)]
        second = [pools[label][middles.get(label) :] for label in range(own, own + count)]
        return [*split_evenly(first, size, self), *split_evenly(second, size, self)]


@dataclass(frozen=True)
class Distinct(LabelPartition):
    """Every client has labels of its own, the same number of them, and all of their samples."""

    def assign_rows(
        self, rows: Ints, setting: Setting, num_clients: int, rng: np.random.Generator
    ) -> list[Ints]:
        pools = label_pools(rows, setting, rng)
        each = labels_per_client(len(pools), num_clients, self)
        return [
            np.concatenate(pools[client * each : (client + 1) * each])
            for client in range(num_clients)
        ]


def split_labels(num_labels: int, overlap: float) -> tuple[range, range]:
    """The labels of two groups that have a share of theirs in common; some may be left over.

    >>> split_labels(10, 0.2), split_labels(4, 0.6), split_labels(5, 0.0)
    ((range(0, 5), range(4, 9)), (range(0, 2), range(1, 3)), (range(0, 2), range(2, 5)))
    """
    size = floor_int(num_labels / (2 - overlap))
    shared = floor_int(size * overlap)
    require(num_labels > 1, f"two groups need two labels, got data with {num_labels}.")
    if shared == 0:
        return range(num_labels // 2), range(num_labels // 2, num_labels)
    own = size - shared
    return range(size), range(own, own + size)


def split_evenly(pools: list[Ints], num_clients: int, layout: LabelPartition) -> list[Ints]:
    """The same number of samples, of all and of each label, for everybody, up to one."""
    check_enough(pools, num_clients, layout)
    rows = np.concatenate(pools)  # one label after the other, dealt out like cards
    return [rows[client::num_clients] for client in range(num_clients)]


def label_pools(rows: Ints, setting: Setting, rng: np.random.Generator) -> list[Ints]:
    """The rows of every label that occurs, in random order."""
    labels = setting.labels[rows]
    return [rng.permutation(rows[labels == label]) for label in np.unique(labels)]


def half_size(num_clients: int, layout: LabelPartition) -> int:
    """Clients in each of two groups."""
    require(
        num_clients % 2 == 0,
        f"partition={_config_name(layout)} is for two groups of the same size, so that num_clients must be even, got "
        f"{num_clients}.",
    )
    return num_clients // 2


def labels_per_client(num_labels: int, num_clients: int, layout: LabelPartition) -> int:
    """How many labels there are for each client."""
    require(
        num_labels % num_clients == 0,
        f"partition={_config_name(layout)} gives everybody the same number of labels, but {num_labels} labels are not "
        f"a multiple of num_clients={num_clients}; use {num_labels} clients, or a divisor of that.",
    )
    return num_labels // num_clients


def check_enough(pools: list[Ints], num_clients: int, layout: LabelPartition) -> None:
    """Every client of a group must be able to have a sample."""
    have = sum(len(pool) for pool in pools)
    require(
        have >= num_clients,
        f"partition={_config_name(layout)}: {have} samples of a group's {len(pools)} labels are not enough for its "
        f"{num_clients} clients; use fewer clients, or more samples.",
    )


def floor_int(value: float) -> int:
    """Rounded down, but not by rounding errors."""
    return math.floor(value + 1e-9)


def _config_name(layout: LabelPartition) -> str:
    """As it is called in the table of partitions."""
    words = "".join(
        f"-{letter.lower()}" if letter.isupper() else letter for letter in type(layout).__name__
    )
    return words.removeprefix("-")
