"""The SQL table of a device's samples: queries and changes used by the inbox."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from thalweg.core.types import Ints
from thalweg.network.edge.store import Store

MAX_RECENT_NAMES = 4096  # number of recent names for the detection of duplicates


class SampleRow(NamedTuple):
    """A newly received sample without its input."""

    number: int  # 1, 2, ... in order of arrival
    slot: int
    label: int  # class; PENDING_LABEL: not known yet; 0 for known numbers of a regression
    target: bytes | None  # float32 numbers of a regression; none: not known yet, or classes
    time: float
    name: str
    checksum: int


class SampleTable:
    """Queries. In the table, `stream_round` is NULL for samples that belong to no round yet."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def num_new(self) -> int:
        """Number of labelled samples that belong to no round yet."""
        return self._count("SELECT count(*) FROM samples WHERE stream_round IS NULL AND label >= 0")

    @property
    def num_waiting(self) -> int:
        """Number of samples without a label."""
        return self._count("SELECT count(*) FROM samples WHERE stream_round IS NULL AND label < 0")

    def read_all(self) -> tuple[Ints, Ints, list[bytes | None], list[int]]:
        """Slots, labels, targets and checksums of all samples."""
        rows = self._fetch_all("SELECT slot, label, target, checksum FROM samples")
        slots, labels, targets, checksums = zip(*rows, strict=True) if rows else ((),) * 4
        numbers = (np.array(column, dtype=np.int64) for column in (slots, labels))
        return *numbers, list(targets), list(checksums)  # type: ignore[return-value]

    def slots_of_round(self, stream_round: int) -> Ints:
        """Slots of the samples of one round, in order of arrival."""
        return self._fetch_slots(
            "SELECT slot FROM samples WHERE stream_round = ? ORDER BY number", stream_round
        )

    def slots_before(self, stream_round: int) -> Ints:
        """Slots of the samples of all earlier rounds."""
        return self._fetch_slots("SELECT slot FROM samples WHERE stream_round < ?", stream_round)

    def oldest_waiting(self, number: int) -> Ints:
        """Slots of the samples that have waited longest for their labels."""
        query = "SELECT slot FROM samples WHERE stream_round IS NULL AND label < 0"
        return self._fetch_slots(f"{query} ORDER BY number LIMIT ?", number)

    def find_waiting(self, name: str) -> int | None:
        """Slot of the unlabelled sample with this name."""
        query = "SELECT slot FROM samples WHERE name = ? AND name <> '' AND label < 0"
        slots = self._fetch_slots(query, name).tolist()
        return slots[0] if slots else None

    def is_recent(self, name: str) -> bool:
        """True if a sample with this name arrived recently."""
        return self._count("SELECT count(*) FROM recent WHERE name = ?", name) > 0

    def _count(self, query: str, *values: object) -> int:
        return int(self._fetch_all(query, *values)[0][0])

    def _fetch_slots(self, query: str, *values: object) -> Ints:
        return np.array([slot for (slot,) in self._fetch_all(query, *values)], dtype=np.int64)

    def _fetch_all(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._store.read_transaction() as db:
            return db.execute(query, values).fetchall()


# --- changes, within a transaction ---


def insert(db: sqlite3.Connection, samples: Sequence[SampleRow]) -> None:
    """Insert new samples and their names."""
    db.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", samples)
    named = [(sample.name, sample.number) for sample in samples if sample.name]
    if named:
        db.executemany("INSERT OR REPLACE INTO recent VALUES (?, ?)", named)
        db.execute("DELETE FROM recent WHERE number <= ?", (named[-1][1] - MAX_RECENT_NAMES,))


def label(db: sqlite3.Connection, labels: Iterable[tuple[int, int, bytes | None]]) -> None:
    """Set labels and targets by slot."""
    rows = [(label, target, slot) for slot, label, target in labels]
    db.executemany("UPDATE samples SET label = ?, target = ? WHERE slot = ?", rows)


def mark(db: sqlite3.Connection, stream_round: int) -> None:
    """Assign all labelled new samples to a round."""
    db.execute(
        "UPDATE samples SET stream_round = ? WHERE stream_round IS NULL AND label >= 0",
        (stream_round,),
    )


def delete(db: sqlite3.Connection, slots: Ints) -> None:
    db.executemany("DELETE FROM samples WHERE slot = ?", [(slot,) for slot in slots.tolist()])
