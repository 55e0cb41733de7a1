from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from network.edge.doubles import SCHEMA, batch, late_labels
from thalweg.core.errors import RunError
from thalweg.network.edge.inbox import Inbox
from thalweg.network.edge.schema import DataSchema
from thalweg.network.edge.store import Store
from thalweg.network.sources import LateLabels, LiveBatch

CAPACITY, QUEUE = 3, 6


@contextmanager
def open_inbox(folder: Path, capacity: int = CAPACITY, queue: int = QUEUE) -> Iterator[Inbox]:
    store = Store.open(folder)
    try:
        inbox = Inbox(store, SCHEMA, capacity, queue)
        yield inbox
        inbox.close()
    finally:
        store.close()


def contents(inbox: Inbox, stream_round: int) -> list[int]:
    """Return the numbers of the samples that were marked for a round."""
    return [int(x[0]) for x in inbox.slots.x[inbox.marked_slots(stream_round)]]


def test_received_samples_survive_a_restart(tmp_path: Path) -> None:
    with open_inbox(tmp_path) as inbox:
        inbox.receive(batch([5, 6], cursor="after 6"))
        assert (inbox.num_new, inbox.num_free, inbox.cursor) == (2, 7, ("after 6", 0))
    with open_inbox(tmp_path) as inbox:
        assert (inbox.num_new, inbox.num_free, inbox.cursor) == (2, 7, ("after 6", 0))
        inbox.mark(0)
        assert contents(inbox, 0) == [5, 6]
        assert inbox.labels[inbox.marked_slots(0)].tolist() == [2, 0]
        assert inbox.counts.received == 2


def test_samples_after_the_mark_belong_to_the_next_round(tmp_path: Path) -> None:
    with open_inbox(tmp_path) as inbox:
        inbox.receive(batch([1, 2]))
        inbox.mark(0)
        inbox.receive(batch([3]))
        inbox.mark(0)  # as for a repeated survey request
    with open_inbox(tmp_path) as inbox:
        inbox.mark(0)
        assert contents(inbox, 0) == [1, 2]
        inbox.mark(1)
        assert contents(inbox, 1) == [3]


def test_samples_not_held_after_a_round_free_their_slots(tmp_path: Path) -> None:
    with open_inbox(tmp_path) as inbox:
        inbox.receive(batch([1, 2, 3]))
        inbox.mark(0)
        rows = inbox.marked_slots(0)
        inbox.commit(b"state", 1, rows[:1])
        assert (inbox.num_free, inbox.counts.evicted, inbox.num_new) == (8, 2, 0)
        inbox.commit(b"the same round, asked again", 1, rows[:1])
        assert inbox.counts.evicted == 2
    with open_inbox(tmp_path) as inbox:
        assert (inbox.num_free, inbox.counts.evicted) == (8, 2)
        inbox.check_rows(1, rows[:1])
        with pytest.raises(RunError, match=r"damaged .*samples that do not exist"):
            inbox.check_rows(1, rows)


def test_samples_with_late_labels_keep_their_arrival_order(
    tmp_path: Path,
) -> None:
    with open_inbox(tmp_path) as inbox:
        inbox.receive(batch([7, 8, 9], labels=[-1, 2, -1]))
        assert (inbox.num_new, inbox.num_waiting) == (1, 2)
    with open_inbox(tmp_path) as inbox:
        inbox.add_labels(late_labels(_7=1, _8=0, nobody=1, _9=3))
        # Sample 8 has its label, the key "nobody" is unknown, and there is no class 3.
        assert (inbox.num_new, inbox.num_waiting) == (2, 1)
        assert (inbox.counts.unmatched, inbox.counts.rejected) == (2, 1)
        inbox.mark(0)
        assert contents(inbox, 0) == [7, 8]
        assert inbox.labels[inbox.marked_slots(0)].tolist() == [1, 2]


def test_oldest_samples_without_labels_expire(tmp_path: Path) -> None:
    with open_inbox(tmp_path) as inbox:  # at most three pending labels
        inbox.receive(batch([1, 2], labels=[-1, -1]))
        inbox.receive(batch([3, 4], labels=[-1, -1]))
        assert (inbox.num_waiting, inbox.counts.expired, inbox.num_free) == (3, 1, 6)
        inbox.add_labels(late_labels(_1=0, _4=0))
        assert (inbox.num_new, inbox.counts.unmatched) == (1, 1)


def test_duplicate_samples_are_recognised_by_their_key(tmp_path: Path) -> None:
    with open_inbox(tmp_path) as inbox:
        inbox.receive(batch([1, 2, 1]))
        inbox.mark(0)
        inbox.commit(b"", 1, np.empty(0, dtype=np.int64))  # removes both samples
    with open_inbox(tmp_path) as inbox:
        inbox.receive(batch([2, 3]))
        inbox.receive(batch([2, 2], keys=["", ""]))  # samples without keys are never duplicates
        assert (inbox.counts.received, inbox.counts.duplicates) == (5, 2)


def test_invalid_samples_are_rejected_and_counted(tmp_path: Path) -> None:
    with open_inbox(tmp_path) as inbox:
        wrong = batch([1, 2, 3, 4], labels=[3, -2, 1, -1], keys=["a", "b", "c", ""])
        wrong.inputs[2, 1] = np.inf
        inbox.receive(wrong, is_last=True)
        assert (inbox.counts.received, inbox.counts.rejected) == (0, 4)
        inbox.receive(batch([1])._replace(inputs=np.zeros((1, 3), dtype=np.float32)))
        inbox.receive(batch([1])._replace(inputs=np.zeros((1, 2), dtype=np.uint8)))
        assert inbox.counts.rejected == 6


def test_cursor_advances_only_after_the_last_part_of_a_batch(tmp_path: Path) -> None:
    with open_inbox(tmp_path) as inbox:
        inbox.receive(batch([1], cursor="1"))
        inbox.receive(batch([2, 3], cursor="4"), is_last=False)
        assert inbox.cursor == ("1", 2)
        inbox.receive(batch([4], cursor="4"))
        assert inbox.cursor == ("4", 0)


def test_full_disk_loses_no_stored_samples(tmp_path: Path) -> None:
    with open_inbox(tmp_path, 3, 200) as inbox:
        inbox.receive(batch([1], cursor="1"))
        with inbox._store.read_transaction() as db:
            (pages,) = db.execute("PRAGMA page_count").fetchone()
            db.execute(f"PRAGMA max_page_count = {pages}")
        long = [f"{n:0500}" for n in range(50)]
        with pytest.raises(RunError, match="the disk is full"):
            inbox.receive(batch(range(50), keys=long, cursor="2"))
        assert (inbox.num_new, inbox.num_free, inbox.cursor) == (1, 202, ("1", 0))
        with inbox._store.read_transaction() as db:
            db.execute("PRAGMA max_page_count = 100000")
        inbox.receive(batch(range(50), keys=long, cursor="2"))
        assert (inbox.num_new, inbox.counts.received) == (51, 51)


def test_full_disk_when_allocating_slots_gives_one_line_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int, start: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(RunError, match="the disk is full"), open_inbox(tmp_path):
        pass


def test_externally_modified_slot_is_detected(tmp_path: Path) -> None:
    with open_inbox(tmp_path) as inbox:
        inbox.receive(batch([1, 2]))
    file = tmp_path / "samples.bin"
    content = bytearray(file.read_bytes())
    content[8] ^= 1  # in the second slot
    file.write_bytes(content)
    with (
        pytest.raises(RunError, match="the contents of sample 1 have changed"),
        open_inbox(tmp_path),
    ):
        pass
    file.write_bytes(b"")
    with pytest.raises(RunError, match="damaged"), open_inbox(tmp_path):
        pass


def test_other_capacity_or_schema_is_rejected_and_a_longer_queue_is_accepted(
    tmp_path: Path,
) -> None:
    with open_inbox(tmp_path) as inbox:
        inbox.receive(batch([1, 2]))
    with (
        pytest.raises(RunError, match="capacity = 3, but now capacity = 4"),
        open_inbox(tmp_path, 4),
    ):
        pass
    with open_inbox(tmp_path, queue=10) as inbox:
        assert (inbox.num_new, inbox.num_free) == (2, 11)
    with open_inbox(tmp_path, queue=2) as inbox:  # stored samples are kept
        assert inbox.num_free == 11
    store = Store.open(tmp_path)
    with pytest.raises(RunError, match=r"shape = \[2\], but now shape = \[3\]"):
        Inbox(store, DataSchema((3,), "float32", 3), CAPACITY, QUEUE)
    store.close()


class Model:
    """A reference model of the inbox with plain lists."""

    def __init__(self) -> None:
        self.new: list[int] = []
        self.waiting: list[int] = []
        self.marked_slots: list[int] = []
        self.memory: list[int] = []
        self.received = self.evicted = self.expired = 0

    @property
    def num_used(self) -> int:
        return len(self.new) + len(self.waiting) + len(self.marked_slots) + len(self.memory)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("receive"), st.integers(0, 4), st.integers(0, 4)),
        st.tuples(st.just("name"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("live"), st.integers(0, CAPACITY), st.just(0)),
        st.tuples(st.just("mark"), st.just(0), st.just(0)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


@settings(deadline=None, max_examples=40)
@given(STEPS)
def test_every_slot_is_free_or_holds_one_sample_after_any_steps(
    steps: list[tuple[str, int, int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model, stream_round, marked_slots = Model(), 0, -1
        store = Store.open(Path(folder))
        inbox = Inbox(store, SCHEMA, CAPACITY, QUEUE)
        for kind, first, second in steps:
            if kind == "receive":
                number = min(first, inbox.room)
                unlabelled = min(second, number)
                names = range(model.received, model.received + number)
                labels = [-1 if k < unlabelled else 1 for k in range(number)]
                inbox.receive(batch(names, labels=labels))
                model.received += number
                model.waiting += names[:unlabelled]
                model.new += names[unlabelled:]
                if unlabelled:
                    expired = max(len(model.waiting) - inbox.max_waiting, 0)
                    model.expired += expired
                    model.waiting = model.waiting[expired:]
            elif kind == "name":
                told = model.waiting[:first]
                inbox.add_labels(late_labels(**{f"_{n}": 2 for n in told}))
                model.waiting = model.waiting[first:]
                model.new = sorted(model.new + told)
            elif kind in ("mark", "live"):
                inbox.mark(stream_round)
                if marked_slots < stream_round:
                    model.marked_slots, model.new, marked_slots = model.new, [], stream_round
                assert contents(inbox, stream_round) == model.marked_slots
            if kind == "live":
                before = model.memory + model.marked_slots
                model.memory = before[-first:] if first else []
                model.evicted += len(before) - len(model.memory)
                model.marked_slots, stream_round = [], stream_round + 1
                slots = [s for s in range(inbox.slots.num) if inbox._is_taken[s]]
                rows = [s for s in slots if int(inbox.slots.x[s, 0]) in model.memory]
                inbox.commit(b"", stream_round, np.array(rows, dtype=np.int64))
            elif kind == "restart":
                inbox.close()
                store.close()
                store = Store.open(Path(folder))
                inbox = Inbox(store, SCHEMA, CAPACITY, QUEUE)

            counts = inbox.counts
            assert (counts.received, counts.evicted) == (model.received, model.evicted)
            assert counts.expired == model.expired
            assert (inbox.num_new, inbox.num_waiting) == (len(model.new), len(model.waiting))
            assert inbox.num_free == CAPACITY + QUEUE - model.num_used
            held = {int(x) for x in inbox.slots.x[inbox._is_taken, 0]}
            assert held == {*model.new, *model.waiting, *model.marked_slots, *model.memory}
        inbox.close()
        store.close()


def numbers_batch(values: list[list[float]], keys: tuple[str, ...]) -> LiveBatch:
    inputs = np.zeros((len(values), 2), np.float32)
    return LiveBatch(inputs, np.array(values, np.float32), np.zeros(len(values)), keys, "")


def test_numbers_to_predict_survive_a_restart(tmp_path: Path) -> None:
    schema = DataSchema((2,), "float32", 0, target_shape=(2,))
    nan = float("nan")
    store = Store.open(tmp_path)
    inbox = Inbox(store, schema, capacity=4, queue=8)
    inbox.receive(numbers_batch([[0.1, -2], [nan, nan], [nan, 1]], ("a", "b", "c")))
    assert (inbox.num_new, inbox.num_waiting, inbox.counts.rejected) == (1, 1, 1)
    late = LateLabels(("b", "b", "x"), np.array([[nan, 0], [3, 4], [5, 6]], np.float32), "")
    inbox.add_labels(late)
    assert (inbox.num_new, inbox.num_waiting) == (2, 0)
    assert (inbox.counts.rejected, inbox.counts.unmatched) == (2, 1)
    inbox.close()
    store.close()
    store = Store.open(tmp_path)
    inbox = Inbox(store, schema, capacity=4, queue=8)
    expected = np.array([[0.1, -2], [3, 4]], np.float32)
    assert np.array_equal(inbox.labels[:2], expected)
    assert not inbox.labels[2:].any()
    inbox.close()
    with store.transaction() as db:
        db.execute("UPDATE samples SET target = x'00' WHERE slot = 0")
    with pytest.raises(RunError, match="a stored target has another size"):
        Inbox(store, schema, capacity=4, queue=8)
    other = DataSchema((2,), "float32", 0)
    with pytest.raises(RunError, match=r"target_shape = \[2\], but now target_shape = \[\]"):
        Inbox(store, other, capacity=4, queue=8)
    store.close()
