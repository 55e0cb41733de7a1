"""Label partitions for groups of clients that alternate: labels per client and shared labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.errors import require
from thalweg.core.types import Ints
from thalweg.streams.base import Setting
from thalweg.streams.splitting import SyntheticPartition


class LabelPartition(SyntheticPartition):
    """A partition that assigns labels to clients or to groups of clients.

    Labels are those that occur in the data, in numerical order. Groups are blocks of client ids:
    the first half of the clients and the second half, as in `schedules.Alternating`.
    """

    needs_class_labels: ClassVar[bool] = True  # assigns labels to clients


@dataclass(frozen=True)
class TwoShard(LabelPartition):
    """Every label is split in two, and every client has two halves of different labels.

    With more labels than clients, labels are bundled: 100 labels of 10 clients form 10 bundles of
    10, and a client has half of 20 labels. The assignment is random.
    """

    def assign_rows(
        self, rows: Ints, setting: Setting, num_clients: int, rng: np.random.Generator
    ) -> list[Ints]:
        pools = label_pools(rows, setting, rng)
        each = labels_per_client(len(pools), num_clients, self)
        require(num_clients > 1, "two-shard needs at least two clients, got num_clients=1.")
        bundles = rng.permutation(len(pools)).reshape(num_clients, each)
        takers = rng.permutation(num_clients)
        others = rng.permutation(num_clients)
        while (takers == others).any():  # a client must not have both halves of a label
            others = rng.permutation(num_clients)
        parts: list[list[Ints]] = [[] for _ in range(num_clients)]
        for bundle, one, other in zip(bundles, takers.tolist(), others.tolist(), strict=True):
            for label in bundle.tolist():
                middle = len(pools[label]) // 2
                parts[one].append(pools[label][:middle])
                parts[other].append(pools[label][middle:])
        return [np.concatenate(part) for part in parts]


@dataclass(frozen=True)
class Half(LabelPartition):
    """Each half of the clients shares one half of the labels evenly."""

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
    """Two halves of the clients with some labels in common; samples of common labels are halved.

    Unlike `Overlap`, no sample belongs to two clients, and all clients of a half have the same mix.
    """

    labels: float = 0.6
    """Share of all labels that each half of the clients has."""
    shared: float = 0.2
    """Share of all labels that both halves have."""

    def __post_init__(self) -> None:
        check_ranges(self, labels="(0, 1]", shared="[0, 1]")
        require(
            self.shared <= self.labels and 2 * self.labels - self.shared <= 1 + 1e-9,
            f"labels - shared must lie between 0 and (1 - shared) / 2, got labels={self.labels} "
            f"and shared={self.shared}.",
        )

    def assign_rows(
        self, rows: Ints, setting: Setting, num_clients: int, rng: np.random.Generator
    ) -> list[Ints]:
        pools = label_pools(rows, setting, rng)
        size = half_size(num_clients, self)
        count, both = (floor_int(share * len(pools)) for share in (self.labels, self.shared))
        require(count > 0, f"labels={self.labels} of {len(pools)} labels is less than one label.")
        own = count - both
        middles = {label: len(pools[label]) // 2 for label in range(own, count)}
        first = [pools[label][: middles.get(label)] for label in range(count)]
        second = [pools[label][middles.get(label) :] for label in range(own, own + count)]
        return [*split_evenly(first, size, self), *split_evenly(second, size, self)]


@dataclass(frozen=True)
class Distinct(LabelPartition):
    """Every client has all samples of its labels; labels are split evenly and not shared."""

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
    """Labels of two groups that share a part of them; some labels may remain unused.

    >>> split_labels(10, 0.2), split_labels(4, 0.6), split_labels(5, 0.0)
    ((range(0, 5), range(4, 9)), (range(0, 2), range(1, 3)), (range(0, 2), range(2, 5)))
    """
    size = floor_int(num_labels / (2 - overlap))
    shared = floor_int(size * overlap)
    require(num_labels > 1, f"two groups need at least two labels, got data with {num_labels}.")
    if shared == 0:
        return range(num_labels // 2), range(num_labels // 2, num_labels)
    own = size - shared
    return range(size), range(own, own + size)


def split_evenly(pools: list[Ints], num_clients: int, layout: LabelPartition) -> list[Ints]:
    """Split so that all clients have the same number of samples of each label, up to one."""
    check_enough(pools, num_clients, layout)
    rows = np.concatenate(pools)  # one label after the other, distributed in turn
    return [rows[client::num_clients] for client in range(num_clients)]


def label_pools(rows: Ints, setting: Setting, rng: np.random.Generator) -> list[Ints]:
    """Rows of every label that occurs, in random order."""
    labels = setting.labels[rows]
    return [rng.permutation(rows[labels == label]) for label in np.unique(labels)]


def half_size(num_clients: int, layout: LabelPartition) -> int:
    """Number of clients in each of two groups."""
    require(
        num_clients % 2 == 0,
        f"partition={_config_name(layout)} needs two groups of the same size: num_clients must be "
        f"even, got {num_clients}.",
    )
    return num_clients // 2


def labels_per_client(num_labels: int, num_clients: int, layout: LabelPartition) -> int:
    """Number of labels per client."""
    require(
        num_labels % num_clients == 0,
        f"partition={_config_name(layout)} gives all clients the same number of labels, but "
        f"{num_labels} labels are not a multiple of num_clients={num_clients}; use {num_labels} "
        "clients or a divisor.",
    )
    return num_labels // num_clients


def check_enough(pools: list[Ints], num_clients: int, layout: LabelPartition) -> None:
    """Require at least one sample for every client of a group."""
    have = sum(len(pool) for pool in pools)
    require(
        have >= num_clients,
        f"partition={_config_name(layout)}: {have} samples of a group's {len(pools)} labels are "
        f"not enough for {num_clients} clients; use fewer clients or more samples.",
    )


def floor_int(value: float) -> int:
    """Round down, with a tolerance for floating-point errors."""
    return math.floor(value + 1e-9)


def _config_name(layout: LabelPartition) -> str:
    """Name of the partition in the configuration."""
    words = "".join(
        f"-{letter.lower()}" if letter.isupper() else letter for letter in type(layout).__name__
    )
    return words.removeprefix("-")
