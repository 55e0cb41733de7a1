"""Every message is handed on once, however often it comes, and acknowledged when it is stored."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from thalweg.network.sources.deliveries import IN_FLIGHT, MAX_REMEMBERED, Deliveries


def test_a_message_is_acknowledged_when_it_is_confirmed() -> None:
    books = Deliveries()
    assert books.receive(7, b"a", False) == (1, False)
    assert books.receive(8, b"b", False) == (2, False)
    assert books.confirm(books.cursor(1)) == [7]
    assert books.confirm(books.cursor(1)) == []
    assert books.confirm(books.cursor(2)) == [8]


def test_a_second_delivery_of_what_is_stored_is_acknowledged_at_once() -> None:
    books = Deliveries()
    number, _ = books.receive(7, b"a", False)
    books.confirm(books.cursor(number))
    assert books.receive(7, b"a", True) == (None, True)


def test_a_second_delivery_of_what_is_on_its_way_waits_for_its_confirmation() -> None:
    books = Deliveries()
    number, _ = books.receive(7, b"a", False)
    assert books.receive(7, b"a", True) == (None, False)
    assert books.confirm(books.cursor(number)) == [7]


def test_the_cursor_remembers_over_a_kill() -> None:
    books = Deliveries()
    books.receive(7, b"a", False)
    cursor = books.cursor(1)  # stored, but never acknowledged
    books.receive(8, b"b", False)  # not stored
    again = Deliveries(cursor)
    assert again.receive(7, b"a", True) == (None, True)
    assert again.receive(8, b"b", True) == (2, False)


def test_the_same_number_with_something_else_is_a_new_message() -> None:
    books = Deliveries()
    books.receive(7, b"a", False)
    assert books.receive(7, b"b", True) == (2, False)
    assert books.receive(7, b"b", False) == (3, False)  # not sent again: a new one


def test_a_lost_session_starts_over() -> None:
    books = Deliveries()
    books.receive(1, b"a", False)
    books.forget()
    assert books.confirm(books.cursor(1)) == []
    assert books.receive(1, b"a", True) == (2, False)


def test_a_cursor_stays_small() -> None:
    books = Deliveries()
    for mid in range(1, 2000):
        books.receive(mid, str(mid).encode(), False)
    cursor = books.cursor(1999)
    assert len(json.loads(cursor)["seen"].split()) == MAX_REMEMBERED
    assert len(cursor) < 4096


class Broker:
    """Sends messages in order, at most some ahead, and all open ones again after every break."""

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
        # Neighbours say the same, as sensors do.
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
def test_every_message_is_stored_once_whatever_breaks(steps: list[str]) -> None:
    broker, books = Broker(40), Deliveries()
    stored: list[bytes] = []
    cursor = ""
    handed: list[tuple[int, bytes]] = []  # not stored yet
    for step in [*steps, "break", *["send", "store", "ack"] * 200]:
        if step == "send" and (message := broker.send()) is not None:
            mid, payload, again = message
            number, known = books.receive(mid, payload, again)
            if known:
                broker.acknowledged(mid)
            if number is not None:
                handed.append((number, payload))
        elif step == "store" and handed:
            number, payload = handed.pop(0)
            stored.append(payload)
            cursor = books.cursor(number)
        elif step == "ack":
            for mid in books.confirm(cursor):
                broker.acknowledged(mid)
        elif step == "break":
            broker.broken()
        elif step == "kill":
            books, handed = Deliveries(cursor), []
            broker.broken()
    assert stored == [str(i // 3).encode() for i in range(40)]
