"""Python iterators as sources, read in a separate thread because they may block."""

from __future__ import annotations

import inspect
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from thalweg.core.config import load_object
from thalweg.core.errors import ConfigError, DataError, require
from thalweg.network.sources.base import Event, SampleFormat, empty_batch
from thalweg.network.sources.base_source import (
    HEARTBEAT_S,
    MAX_BATCH,
    BaseSource,
    decode_cursor,
    encode_cursor,
)
from thalweg.network.sources.fields import FIELDS, parse_field_names, with_columns
from thalweg.network.sources.records import BrokenRecord, FieldNames, Record
from thalweg.network.sources.spec import SourceSpec

IteratorFactory = Callable[[int], Iterable[Any]]
"""An iterator over all items after a number of them."""


class IteratorEnd(Exception):
    """End of an iterator, with its exception, if any."""


class IteratorSource(BaseSource):
    """Items ``(x, y)``, ``(x, y, t)`` or mappings with field names.

    With `is_resumable` the iterator can start after a number of items; otherwise a restarted reader
    begins again.
    """

    def __init__(
        self,
        begin: IteratorFactory,
        sample_format: SampleFormat,
        names: FieldNames = FieldNames(),  # noqa: B008  a constant
        *,
        is_resumable: bool = True,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        super().__init__(sample_format, heartbeat_s)
        self._begin, self._names, self._is_resumable = begin, names, is_resumable

    def events(self, cursor: str) -> Iterator[Event]:
        number = (decode_cursor(cursor, item=int) or {"item": 0})["item"]
        items: queue.Queue[Any] = queue.Queue(MAX_BATCH)
        pump = threading.Thread(target=self._pump, args=(number, items), daemon=True)
        pump.start()
        end = None
        while end is None and not self._closed.is_set():
            some, end = _take_items(items, self.heartbeat_s)
            records = [self._record(item, number + i + 1) for i, item in enumerate(some)]
            number += len(some)
            yield from self._validator.events(records, self._cursor)
            if not some:
                yield empty_batch(self.sample_format, self._cursor(number))
        if end is not None and end.__cause__ is not None:
            raise DataError(
                f"the source ended with {end.__cause__!r} after item {number}."
            ) from end

    def _cursor(self, number: int) -> str:
        return encode_cursor(item=number) if self._is_resumable else ""

    def _record(self, item: Any, number: int) -> Record | BrokenRecord:
        if isinstance(item, tuple | list) and len(item) in (2, 3):
            return Record(item[0], item[1], item[2] if len(item) == 3 else None, mark=number)
        return self._names.read(item, number)

    def _pump(self, start: int, items: queue.Queue[Any]) -> None:
        end = IteratorEnd()
        try:
            for item in self._begin(start):
                if not self._put(item, items):
                    return
        except Exception as error:  # exceptions of user code are passed to the reader
            end.__cause__ = error
        self._put(end, items)

    def _put(self, item: Any, items: queue.Queue[Any]) -> bool:
        """Wait for room in the queue; False if the reader has stopped."""
        while not self._closed.is_set():
            try:
                items.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False


def python_source(spec: SourceSpec, sample_format: SampleFormat) -> IteratorSource:
    """``package.module:function`` or ``file.py:function``.

    A parameter `start` makes it resumable.
    """
    spec.check_options(*FIELDS)
    sample_format = with_columns(sample_format, spec)
    function = load_object(spec.location)
    require(
        callable(function),
        f"{spec.location}: expected a function that returns an iterator, got {function!r}.",
    )
    is_resumable = "start" in inspect.signature(function).parameters

    def begin(start: int) -> Iterable[Any]:
        found = function(start=start) if is_resumable else function()
        if not isinstance(found, Iterable):
            raise ConfigError(f"{spec.location}: expected an iterator, got {type(found).__name__}.")
        return found

    return IteratorSource(
        begin, sample_format, parse_field_names(spec, sample_format), is_resumable=is_resumable
    )


def _take_items(
    items: queue.Queue[Any], heartbeat_s: float
) -> tuple[list[Any], IteratorEnd | None]:
    """Available items, or the first one that arrives; and the end, if it was reached."""
    some: list[Any] = []
    deadline = time.monotonic() + heartbeat_s
    while len(some) < MAX_BATCH:
        try:
            item = items.get(
                not some, timeout=None if some else max(deadline - time.monotonic(), 0.001)
            )
        except queue.Empty:
            break
        if isinstance(item, IteratorEnd):
            return some, item
        some.append(item)
    return some, None
