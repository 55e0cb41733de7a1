"""The samples of a device, from their arrival until the memory policy drops them.

A sample is first written into a free slot and then entered into the table together with the
position of its source. A killed process therefore neither loses nor duplicates samples: a sample in
a slot but not in the table was never received, and the source delivers it again.

In the table, `stream_round` is NULL until the sample is marked for one of the client's own rounds.
When that round is over, the sample is either in the client's memory or dropped.
"""

from __future__ import annotations

import json
import math
import sqlite3
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import RunError
from thalweg.core.types import Ints
from thalweg.network.edge.counts import SampleCounts, counts_from_json, counts_to_json
from thalweg.network.edge.database import damaged_folder_error
from thalweg.network.edge.schema import DataSchema
from thalweg.network.edge.slots import Slots
from thalweg.network.edge.store import Store, write_facts
from thalweg.network.edge.table import SampleRow, SampleTable, delete, insert, label, mark
from thalweg.network.sources import PENDING_LABEL, LateLabels, LiveBatch, Targets, find_pending


class Inbox:
    """Slots and their samples. One thread receives; another may mark and commit concurrently."""

    def __init__(self, store: Store, schema: DataSchema, capacity: int, queue: int) -> None:
        """`queue`: capacity besides a full memory; half of it may wait for labels."""
        self._store, self._schema, self._table = store, schema, SampleTable(store)
        self._lock = threading.RLock()
        self.max_waiting = max(queue // 2, 1)
        num = self._init_num_slots(capacity, capacity + queue)
        self.slots = Slots(store.folder / "samples.bin", num, schema.shape, schema.dtype)
        self.labels: Targets = schema.zero_targets(num)  # of all slots; 0 if there is none
        self._is_taken = np.zeros(num, dtype=bool)
        self.counts = counts_from_json(store.read_fact("counts"))
        self._last_marked = int(store.read_fact("marked") or -1)
        self._load()

    def close(self) -> None:
        self.slots.close()

    # --- counts ---

    @property
    def room(self) -> int:
        """Number of samples that can be received now."""
        return min(self.num_free, self.max_waiting)

    @property
    def num_free(self) -> int:
        return int(np.count_nonzero(~self._is_taken))

    @property
    def num_new(self) -> int:
        """Number of labelled samples that belong to no round yet."""
        return self._table.num_new

    @property
    def num_waiting(self) -> int:
        """Number of samples without a label."""
        return self._table.num_waiting

    # --- receiving ---

    @property
    def cursor(self) -> tuple[str, int]:
        """Position at which the source continues, and number of stored samples after it."""
        return self._store.read_fact("cursor") or "", int(self._store.read_fact("ahead") or 0)

    def receive(self, batch: LiveBatch, *, is_last: bool = True) -> None:
        """Store samples, at most `room`, and the position of the source.

        If this is not the last part of a delivery, the position stays before the delivery, and the
        number of stored samples after it is recorded.
        """
        with self._lock:
            good = self._schema.find_valid(batch)
            fresh = self._drop_duplicates(batch.keys, good)
            labels = batch.labels[fresh]
            is_pending = find_pending(labels)
            self._expire(int(np.count_nonzero(is_pending)))
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
            known = map(self._encode_target, labels)
            parts = zip(numbers, slots.tolist(), known, times, names, checksums, strict=True)
            rows = [
                SampleRow(number, slot, *target, *rest) for number, slot, target, *rest in parts
            ]
            with self._store.transaction() as db:
                insert(db, rows)
                self._write_facts(db, counts, *self._next_cursor(batch, is_last))
            self._is_taken[slots] = True
            self.labels[slots] = np.where(_like(is_pending, labels), 0, labels)
            self.counts = counts

    def add_labels(self, late: LateLabels) -> None:
        """Add labels of samples received earlier."""
        with self._lock:
            found: dict[int, Any] = {}
            rejected = unmatched = 0
            is_valid = self._schema.find_valid_targets(late.labels)
            for key, right, valid in zip(late.keys, late.labels, is_valid, strict=True):
                slot = self._table.find_waiting(key)
                if not valid:
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
                label(db, [(slot, *self._encode_target(right)) for slot, right in found.items()])
                self._write_facts(db, counts, late.cursor, 0)
            for slot, right in found.items():
                self.labels[slot] = right
            self.counts = counts

    def add_lost(self, number: int) -> None:
        """Count samples that could not be received."""
        with self._lock:
            counts = replace(self.counts, lost=self.counts.lost + number)
            with self._store.transaction() as db:
                self._write_facts(db, counts)
            self.counts = counts

    # --- rounds ---

    def mark(self, stream_round: int) -> None:
        """Assign all labelled new samples to a round of the client. Once per round."""
        with self._lock:
            if stream_round <= self._last_marked:
                return
            with self._store.transaction() as db:
                mark(db, stream_round)
                write_facts(db, {"marked": str(stream_round)})
            self._last_marked = stream_round

    def marked_slots(self, stream_round: int) -> Ints:
        """Slots of the samples of a round, in order of arrival."""
        return self._table.slots_of_round(stream_round)

    def commit(
        self,
        state: bytes,
        stream_round: int,
        rows: Ints,
        *,
        digest: str | None = None,
        response: bytes = b"",
        rnd: int = -1,
        **new_counts: Any,
    ) -> None:
        """Store a state of the client with its rows and the response, atomically.

        Samples of finished rounds that the client does not hold are evicted. `new_counts` are added
        to the counters.
        """
        with self._lock:
            gone = np.setdiff1d(self._table.slots_before(stream_round), rows)
            counts = replace(self.counts, evicted=self.counts.evicted + len(gone), **new_counts)

            def extra_write(db: sqlite3.Connection) -> None:
                delete(db, gone)
                self._write_facts(db, counts)

            self._store.commit(state, digest, response, rnd, extra_write)
            self._is_taken[gone] = False
            self.counts = counts

    def check_rows(self, stream_round: int, rows: Ints) -> None:
        """Reject a folder whose client holds rows that do not exist."""
        if len(np.setdiff1d(rows, self._table.slots_before(stream_round))):
            raise damaged_folder_error(
                self._store.folder, "the client holds samples that do not exist"
            )

    # --- private ---

    def _init_num_slots(self, capacity: int, num: int) -> int:
        """Number of slots: the requested number, or more if the file has more."""
        ours = {
            "shape": list(self._schema.shape),
            "dtype": self._schema.dtype,
            "capacity": capacity,
            "num_classes": self._schema.num_classes,
            "target_shape": list(self._schema.target_shape),
        }
        text = self._store.read_fact("samples")
        if text is not None:
            theirs = json.loads(text)
            num = max(num, theirs.pop("slots"))
            for name, old in theirs.items():
                if old != ours[name]:
                    raise RunError(
                        f"the state folder {self._store.folder} was created for samples with "
                        f"{name} = {old}, but now {name} = {ours[name]}; join with another folder "
                        "(--state)."
                    )
        with self._store.transaction() as db:
            write_facts(db, {"samples": json.dumps({**ours, "slots": num})})
        return num

    def _load(self) -> None:
        slots, labels, targets, checksums = self._table.read_all()
        self.slots.check(slots, checksums)
        self._is_taken[slots] = True
        if not self._schema.is_regression:
            self.labels[slots] = np.maximum(labels, 0)
            return
        for slot, stored in zip(slots.tolist(), targets, strict=True):
            if stored is not None:
                self.labels[slot] = self._decode_target(stored)

    def _encode_target(self, target: Any) -> tuple[int, bytes | None]:
        """The columns `label` and `target` of a sample."""
        if not self._schema.is_regression:
            return int(target), None
        if np.isnan(target).all():
            return PENDING_LABEL, None
        return 0, np.asarray(target, dtype=np.float32).tobytes()

    def _decode_target(self, stored: bytes) -> Targets:
        """The numbers of a sample from `_encode_target`."""
        shape = self._schema.target_shape
        if len(stored) != 4 * math.prod(shape):
            raise damaged_folder_error(self._store.folder, "a stored target has another size")
        return np.frombuffer(stored, dtype=np.float32).reshape(shape)

    def _drop_duplicates(self, keys: tuple[str, ...], good: Ints) -> Ints:
        """Positions of samples with new names or without names."""
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
        """Make room for unlabelled samples: drop those that have waited longest.

        A separate transaction, so that no slot is overwritten while it is in use.
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
        """Cursor of the source, and number of stored samples after it.

        0 for sources without cursors.
        """
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


def _like(is_pending: npt.NDArray[np.bool_], labels: Targets) -> npt.NDArray[np.bool_]:
    """The mask (B,) with the number of axes of the targets."""
    return is_pending.reshape(len(labels), *[1] * (labels.ndim - 1))
