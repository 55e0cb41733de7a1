"""The samples of a device, from the moment they are received until the memory policy lets them go.

A sample is written into a free slot first, and then entered into the table together with the place to which its
source has been read. So a process that is killed neither loses nor doubles a sample: what is in a slot but not in
the table was never received, and the source delivers it again.

In the table, `lived` is none until the sample is marked for one of the client's lived rounds. Then that round finds
it whenever it is asked, and when the round is over the sample is in the client's memory, or gone.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from dataclasses import replace
from typing import Any

import numpy as np

from thalweg.core.errors import RunError
from thalweg.core.types import Ints
from thalweg.network.edge.counts import SampleCounts, counts_from_json, counts_to_json
from thalweg.network.edge.database import damaged_folder_error
from thalweg.network.edge.schema import DataSchema
from thalweg.network.edge.slots import Slots
from thalweg.network.edge.store import Store, write_facts
from thalweg.network.edge.table import SampleRow, SampleTable, delete, insert, label, mark
from thalweg.network.sources import PENDING_LABEL, LateLabels, LiveBatch


class Inbox:
    """Slots, and who is in which. One thread receives; another may mark and commit meanwhile."""

    def __init__(self, store: Store, schema: DataSchema, capacity: int, queue: int) -> None:
        """`queue`: samples that can be here beside a full memory; half of them may wait for their labels."""
        self._store, self._schema, self._table = store, schema, SampleTable(store)
        self._turn = threading.RLock()
        self.max_waiting = max(queue // 2, 1)
        num = self._init_num_slots(capacity, capacity + queue)
        self.slots = Slots(store.folder / "samples.bin", num, schema.shape, schema.dtype)
        self.labels: Ints = np.zeros(num, dtype=np.int64)  # of all slots; 0 where there is none
        self._is_taken = np.zeros(num, dtype=bool)
        self.counts = counts_from_json(store.read_fact("counts"))
        self._last_marked = int(store.read_fact("marked") or -1)
        self._load()

    def close(self) -> None:
        self.slots.close()

    # --- how many ---

    @property
    def room(self) -> int:
        """Samples that can be received at once."""
        return min(self.num_free, self.max_waiting)

    @property
    def num_free(self) -> int:
        return int(np.count_nonzero(~self._is_taken))

    @property
    def num_new(self) -> int:
        """Samples with a label that are in no round yet."""
        return self._table.num_new

    @property
    def num_waiting(self) -> int:
        """Samples whose labels are not known yet."""
        return self._table.num_waiting

    # --- what comes ---

    @property
    def cursor(self) -> tuple[str, int]:
        """Where the source goes on, and how many samples after that are here already."""
        return self._store.read_fact("cursor") or "", int(self._store.read_fact("ahead") or 0)

    def receive(self, batch: LiveBatch, *, is_last: bool = True) -> None:
        """Keep samples, at most `room` of them, and how far the source has been read with them.

        If this is not the last part of what the source delivered at once, it is still before all of it, and the
        device is so many samples ahead.
        """
        with self._turn:
            good = self._schema.find_valid(batch)
            fresh = self._drop_duplicates(batch.keys, good)
            labels = batch.labels[fresh]
            self._expire(int(np.count_nonzero(labels == PENDING_LABEL)))
            slots = np.flatnonzero(~self._is_taken)[: len(fresh)]
            checksums = self.slots.write(slots, batch.inputs[fresh])
            counts = replace(
                self.counts,
                received=self.counts.received + len(fresh),
                duplicates=self.counts.duplicates + len(good) - len(fresh),
                rejected=self.counts.rejected + len(batch.labels) - len(good),
            )
            numbers = range(self.counts.received + 1, counts.received + 1)
            names, times = [batch.keys[k] for k in fresh], batch.times[fresh].tolist()
            parts = (numbers, slots.tolist(), labels.tolist(), times, names, checksums)
            with self._store.transaction() as db:
                insert(db, list(map(SampleRow, *parts)))
                self._write_facts(db, counts, *self._next_cursor(batch, is_last))
            self._is_taken[slots] = True
            self.labels[slots] = np.maximum(labels, 0)
            self.counts = counts

    def add_labels(self, late: LateLabels) -> None:
        """Labels of samples that came before."""
        with self._turn:
            found: dict[int, int] = {}
            rejected = unmatched = 0
            for key, right in zip(late.keys, late.labels.tolist(), strict=True):
                slot = self._table.find_waiting(key)
                if not 0 <= right < self._schema.num_classes:
                    rejected += 1
                elif slot is None or slot in found:
                    unmatched += 1
                else:
                    found[slot] = right
            counts = replace(
                self.counts,
                rejected=self.counts.rejected + rejected,
                unmatched=self.counts.unmatched + unmatched,
            )
            with self._store.transaction() as db:
                label(db, found.items())
                self._write_facts(db, counts, late.cursor, 0)
            for slot, right in found.items():
                self.labels[slot] = right
            self.counts = counts

    def add_lost(self, number: int) -> None:
        """Count samples that could not be received."""
        with self._turn:
            counts = replace(self.counts, lost=self.counts.lost + number)
            with self._store.transaction() as db:
                self._write_facts(db, counts)
            self.counts = counts

    # --- what becomes of it ---

    def mark(self, lived: int) -> None:
        """Say which samples the client's lived round is about: those that are here now. Once for each round."""
        with self._turn:
            if lived <= self._last_marked:
                return
            with self._store.transaction() as db:
                mark(db, lived)
                write_facts(db, {"marked": str(lived)})
            self._last_marked = lived

    def marked_slots(self, lived: int) -> Ints:
        """Slots of the samples that were marked for a lived round, in the order of their coming."""
        return self._table.slots_of_round(lived)

    def commit(
        self,
        state: bytes,
        lived: int,
        rows: Ints,
        *,
        digest: str | None = None,
        response: bytes = b"",
        rnd: int = -1,
        **new_counts: Any,
    ) -> None:
        """Keep a state of the client, who has lived so many rounds and holds these rows, and its reply.

        Of the rounds that are over, whatever the client does not hold is evicted. `new_counts` are counts.
        """
        with self._turn:
            gone = np.setdiff1d(self._table.slots_before(lived), rows)
            counts = replace(self.counts, evicted=self.counts.evicted + len(gone), **new_counts)

            def extra_write(db: sqlite3.Connection) -> None:
                delete(db, gone)
                self._write_facts(db, counts)

            self._store.commit(state, digest, response, rnd, extra_write)
            self._is_taken[gone] = False
            self.counts = counts

    def check_rows(self, lived: int, rows: Ints) -> None:
        """Refuse a folder whose client remembers samples that are not here."""
        if len(np.setdiff1d(rows, self._table.slots_before(lived))):
            raise damaged_folder_error(
                self._store.folder, "the client holds samples that are not here"
            )

    # --- inside ---

    def _init_num_slots(self, capacity: int, num: int) -> int:
        """The number of slots: what is asked for, or more if there are more already."""
        ours = {
            "shape": list(self._schema.shape),
            "dtype": self._schema.dtype,
            "capacity": capacity,
        }
        ours["num_classes"] = self._schema.num_classes
        text = self._store.read_fact("samples")
        if text is not None:
            theirs = json.loads(text)
            num = max(num, theirs.pop("slots"))
            for name, old in theirs.items():
                if old != ours[name]:
                    raise RunError(
                        f"the state folder {self._store.folder} was made for samples with {name} = {old}, but "
                        f"now {name} = {ours[name]}; join with another folder (--state)."
                    )
        with self._store.transaction() as db:
            write_facts(db, {"samples": json.dumps({**ours, "slots": num})})
        return num

    def _load(self) -> None:
        places, labels, checksums = self._table.read_all()
        self.slots.check(places, checksums)
        self._is_taken[places] = True
        self.labels[places] = np.maximum(labels, 0)

    def _drop_duplicates(self, keys: tuple[str, ...], good: Ints) -> Ints:
        """Those of the positions whose names are new, or who have none."""
        seen: set[str] = set()
        fresh = []
        for k in good.tolist():
            key = keys[k]
            if key and (key in seen or self._table.is_recent(key)):
                continue
            seen.add(key)
            fresh.append(k)
        return np.array(fresh, dtype=np.int64)

    def _expire(self, coming: int) -> None:
        """Make room for samples that will wait for their labels: the oldest of those that wait must go.

        In a change of its own, so that nobody writes into a slot that may still be somebody's.
        """
        too_many = self.num_waiting + coming - self.max_waiting
        if coming == 0 or too_many <= 0:
            return
        gone = self._table.oldest_waiting(too_many)
        counts = replace(self.counts, expired=self.counts.expired + len(gone))
        with self._store.transaction() as db:
            delete(db, gone)
            self._write_facts(db, counts)
        self._is_taken[gone] = False
        self.counts = counts

    def _next_cursor(self, batch: LiveBatch, is_last: bool) -> tuple[str | None, int]:
        """The source's cursor, and how many samples we are ahead of it; of one without cursors, never any."""
        if is_last or not batch.cursor:
            return batch.cursor, 0
        cursor, ahead = self.cursor
        return cursor, ahead + len(batch.labels)

    def _write_facts(
        self,
        db: sqlite3.Connection,
        counts: SampleCounts,
        cursor: str | None = None,
        ahead: int = 0,
    ) -> None:
        facts = {"counts": counts_to_json(counts)}
        if cursor is not None:
            facts |= {"cursor": cursor, "ahead": str(ahead)}
        write_facts(db, facts)
