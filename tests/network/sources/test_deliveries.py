"""Tests that messages are delivered once and acknowledged after they are stored."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from thalweg.network.sources.deliveries import IN_FLIGHT, MAX_REMEMBERED, Deliveries


def test_message_is_acknowledged_after_confirmation() -> None:
    tracker = Deliveries()
    assert tracker.receive(7, b"a", False) == (1, False)
    assert tracker.receive(8, b"b", False) == (2, False)
    assert tracker.confirm(tracker.cursor(1)) == [7]
    assert tracker.confirm(tracker.cursor(1)) == []
    assert tracker.confirm(tracker.cursor(2)) == [8]


def test_duplicate_of_a_stored_message_is_acknowledged_at_once() -> None:
    tracker = Deliveries()
    number, _ = tracker.receive(7, b"a", False)
    tracker.confirm(tracker.cursor(number))
    assert tracker.receive(7, b"a", True) == (None, True)


def test_duplicate_of_a_pending_message_waits_for_confirmation() -> None:
    tracker = Deliveries()
    number, _ = tracker.receive(7, b"a", False)
    assert tracker.receive(7, b"a", True) == (None, False)
    assert tracker.confirm(tracker.cursor(number)) == [7]


def test_cursor_identifies_stored_messages_after_a_kill() -> None:
    tracker = Deliveries()
    tracker.receive(7, b"a", False)
    cursor = tracker.cursor(1)  # stored, but never acknowledged
    tracker.receive(8, b"b", False)  # not stored
    again = Deliveries(cursor)
    assert again.receive(7, b"a", True) == (None, True)
    assert again.receive(8, b"b", True) == (2, False)


def test_reused_message_id_with_another_payload_is_a_new_message() -> None:
    tracker = Deliveries()
    tracker.receive(7, b"a", False)
    assert tracker.receive(7, b"b", True) == (2, False)
    assert tracker.receive(7, b"b", False) == (3, False)  # not marked as a duplicate: a new message


def test_lost_session_starts_over() -> None:
    tracker = Deliveries()
    tracker.receive(1, b"a", False)
    tracker.forget()
    assert tracker.confirm(tracker.cursor(1)) == []
    assert tracker.receive(1, b"a", True) == (2, False)


def test_delivery_cursor_size_is_bounded() -> None:
    tracker = Deliveries()
    for mid in range(1, 2000):
        tracker.receive(mid, str(mid).encode(), False)
    cursor = tracker.cursor(1999)
    assert len(json.loads(cursor)["seen"].split()) == MAX_REMEMBERED
    assert len(cursor) < 4096


class Broker:
    """A broker that sends messages in order and resends open ones after every reconnect."""

    def __init__(self, number: int) -> None:
        self.waiting = list(range(number))
        self.open: dict[int, int] = {}  # mid -> message
        self.again: list[int] = []
        self.mid = 0

    def send(self) -> tuple[int, bytes, bool] | None:
        if self.again:
            mid = self.again.pop(0)
            return mid, str(self.open[mid] // 3).encode(), True
        if not self.waiting or len(self.open) >= IN_FLIGHT:
            return None
        self.mid += 1
        self.open[self.mid] = self.waiting.pop(0)
        # Consecutive payloads are equal, as for sensors.
        return self.mid, str(self.open[self.mid] // 3).encode(), False

    def acknowledged(self, mid: int) -> None:
        self.open.pop(mid, None)
        self.again = [each for each in self.again if each != mid]

    def broken(self) -> None:
        self.again = list(self.open)


steps = st.lists(
    st.sampled_from(["send", "send", "send", "store", "ack", "break", "kill"]), max_size=60
)


@given(steps)
def test_every_message_is_stored_once_after_any_failures(steps: list[str]) -> None:
    broker, tracker = Broker(40), Deliveries()
    stored: list[bytes] = []
    cursor = ""
    handed: list[tuple[int, bytes]] = []  # not stored yet
    for step in [*steps, "break", *["send", "store", "ack"] * 200]:
        if step == "send" and (message := broker.send()) is not None:
            mid, payload, again = message
            number, known = tracker.receive(mid, payload, again)
            if known:
                broker.acknowledged(mid)
            if number is not None:
                handed.append((number, payload))
        elif step == "store" and handed:
            number, payload = handed.pop(0)
            stored.append(payload)
            cursor = tracker.cursor(number)
        elif step == "ack":
            for mid in tracker.confirm(cursor):
                broker.acknowledged(mid)
        elif step == "break":
            broker.broken()
        elif step == "kill":
            tracker, handed = Deliveries(cursor), []
            broker.broken()
    assert stored == [str(i // 3).encode() for i in range(40)]
