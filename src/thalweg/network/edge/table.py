"""The table of a device's samples: what can be asked of it, and how it is changed. The rules are the inbox's."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from thalweg.core.types import Ints
from thalweg.network.edge.store import Store

MAX_RECENT_NAMES = 4096  # names of samples by which a second delivery is recognised


class SampleRow(NamedTuple):
    """A sample that has just come, but for its input."""

    number: int  # 1, 2, ... in the order of coming
    slot: int
    label: int  # LATER: not known yet
    time: float
    name: str
    checksum: int


class SampleTable:
    """Questions. In the table, `lived` is none for samples that are in no round yet."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def num_new(self) -> int:
        """Samples with a label that are in no round yet."""
        return self._count("SELECT count(*) FROM samples WHERE lived IS NULL AND label >= 0")

    @property
    def num_waiting(self) -> int:
        """Samples whose labels are not known yet."""
        return self._count("SELECT count(*) FROM samples WHERE lived IS NULL AND label < 0")

    def read_all(self) -> tuple[Ints, Ints, list[int]]:
        """Slots, labels and checksums of all samples."""
        rows = self._fetch_all("SELECT slot, label, checksum FROM samples")
        slots, labels, checksums = zip(*rows, strict=True) if rows else ((), (), ())
        return np.array(slots, dtype=np.int64), np.array(labels, dtype=np.int64), list(checksums)

    def slots_of_round(self, lived: int) -> Ints:
        """Slots of the samples of one lived round, in the order of their coming."""
        return self._fetch_slots("SELECT slot FROM samples WHERE lived = ? ORDER BY number", lived)

    def slots_before(self, lived: int) -> Ints:
        """Slots of the samples of all lived rounds before."""
        return self._fetch_slots("SELECT slot FROM samples WHERE lived < ?", lived)

    def oldest_waiting(self, number: int) -> Ints:
        """Slots of so many samples that have waited longest for their labels."""
        query = "SELECT slot FROM samples WHERE lived IS NULL AND label < 0 ORDER BY number LIMIT ?"
        return self._fetch_slots(query, number)

    def find_waiting(self, name: str) -> int | None:
        """The slot of the sample that waits for its label under a name."""
        query = "SELECT slot FROM samples WHERE name = ? AND name <> '' AND label < 0"
        slots = self._fetch_slots(query, name).tolist()
        return slots[0] if slots else None

    def is_recent(self, name: str) -> bool:
        """Has a sample of this name come not long ago?"""
        return self._count("SELECT count(*) FROM recent WHERE name = ?", name) > 0

    def _count(self, query: str, *values: object) -> int:
        return int(self._fetch_all(query, *values)[0][0])

    def _fetch_slots(self, query: str, *values: object) -> Ints:
        return np.array([slot for (slot,) in self._fetch_all(query, *values)], dtype=np.int64)

    def _fetch_all(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._store.read_transaction() as db:
            return db.execute(query, values).fetchall()


# --- changes, in a transaction ---


def insert(db: sqlite3.Connection, samples: Sequence[SampleRow]) -> None:
    """Samples that have just come, and their names."""
    db.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?, NULL)", samples)
    named = [(sample.name, sample.number) for sample in samples if sample.name]
    if named:
        db.executemany("INSERT OR REPLACE INTO recent VALUES (?, ?)", named)
        db.execute("DELETE FROM recent WHERE number <= ?", (named[-1][1] - MAX_RECENT_NAMES,))


def label(db: sqlite3.Connection, labels: Iterable[tuple[int, int]]) -> None:
    """Labels by slot."""
    rows = [(label, slot) for slot, label in labels]
    db.executemany("UPDATE samples SET label = ? WHERE slot = ?", rows)


def mark(db: sqlite3.Connection, lived: int) -> None:
    """All samples with a label that are in no round yet are in this one."""
    db.execute("UPDATE samples SET lived = ? WHERE lived IS NULL AND label >= 0", (lived,))


def delete(db: sqlite3.Connection, slots: Ints) -> None:
    db.executemany("DELETE FROM samples WHERE slot = ?", [(slot,) for slot in slots.tolist()])
