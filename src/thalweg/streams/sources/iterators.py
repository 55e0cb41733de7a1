"""Any iterator in Python, read in a thread of its own, so that one that blocks does not block its reader."""

from __future__ import annotations

import inspect
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from thalweg.core.config import object_named
from thalweg.core.errors import ConfigError, DataError, require
from thalweg.streams.sources.base import Event, Form, nothing
from thalweg.streams.sources.fields import FIELDS, names_of, with_columns
from thalweg.streams.sources.reading import MOST, PATIENCE, Reading, cursor_parts, cursor_text
from thalweg.streams.sources.records import Broken, Names, Record
from thalweg.streams.sources.spec import Spec

Begin = Callable[[int], Iterable[Any]]
"""An iterator over everything after so many items."""


class End(Exception):
    """Nothing comes any more; carries what went wrong, if anything did."""


class IteratorSource(Reading):
    """Items ``(x, y)``, ``(x, y, t)`` or objects with names.

    With `goes_on` the iterator can begin after so many items; else a reader that comes back starts over.
    """

    def __init__(
        self,
        begin: Begin,
        form: Form,
        names: Names = Names(),  # noqa: B008  a constant
        *,
        goes_on: bool = True,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(form, patience)
        self._begin, self._names, self._goes_on = begin, names, goes_on

    def events(self, cursor: str) -> Iterator[Event]:
        number = (cursor_parts(cursor, item=int) or {"item": 0})["item"]
        items: queue.Queue[Any] = queue.Queue(MOST)
        pump = threading.Thread(target=self._pump, args=(number, items), daemon=True)
        pump.start()
        end = None
        while end is None and not self._closed.is_set():
            some, end = _waiting(items, self.patience)
            records = [self._record(item, number + i + 1) for i, item in enumerate(some)]
            number += len(some)
            yield from self._sieve.events(records, self._cursor)
            if not some:
                yield nothing(self.form, self._cursor(number))
        if end is not None and end.__cause__ is not None:
            raise DataError(
                f"the source ended with {end.__cause__!r} after item {number}."
            ) from end

    def _cursor(self, number: int) -> str:
        return cursor_text(item=number) if self._goes_on else ""

    def _record(self, item: Any, number: int) -> Record | Broken:
        if isinstance(item, tuple | list) and len(item) in (2, 3):
            return Record(item[0], item[1], item[2] if len(item) == 3 else None, mark=number)
        return self._names.read(item, number)

    def _pump(self, start: int, items: queue.Queue[Any]) -> None:
        end = End()
        try:
            for item in self._begin(start):
                if not self._put(item, items):
                    return
        except Exception as error:  # of the user's own code: shown to the reader, where it is seen
            end.__cause__ = error
        self._put(end, items)

    def _put(self, item: Any, items: queue.Queue[Any]) -> bool:
        """Wait until there is room; false: nobody wants it any more."""
        while not self._closed.is_set():
            try:
                items.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False


def python_source(spec: Spec, form: Form) -> IteratorSource:
    """``package.module:function`` or ``file.py:function``; one with a parameter `start` goes on where it was."""
    spec.only(*FIELDS)
    form = with_columns(form, spec)
    function = object_named(spec.place)
    require(
        callable(function),
        f"{spec.place}: expected a function that returns an iterator, got {function!r}.",
    )
    goes_on = "start" in inspect.signature(function).parameters

    def begin(start: int) -> Iterable[Any]:
        found = function(start=start) if goes_on else function()
        if not isinstance(found, Iterable):
            raise ConfigError(f"{spec.place}: expected an iterator, got {type(found).__name__}.")
        return found

    return IteratorSource(begin, form, names_of(spec, form), goes_on=goes_on)


def _waiting(items: queue.Queue[Any], patience: float) -> tuple[list[Any], End | None]:
    """Items that are here, or the first that comes; and the end, if it was reached."""
    some: list[Any] = []
    deadline = time.monotonic() + patience
    while len(some) < MOST:
        try:
            item = items.get(
                not some, timeout=None if some else max(deadline - time.monotonic(), 0.001)
            )
        except queue.Empty:
            break
        if isinstance(item, End):
            return some, item
        some.append(item)
    return some, None
