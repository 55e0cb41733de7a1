"""Common base of the built-in sources: validation, stopping and heartbeats."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from thalweg.core.errors import DataError
from thalweg.network.sources.base import Event, SampleFormat
from thalweg.network.sources.records import RecordValidator

HEARTBEAT_S = 1.0  # seconds between heartbeats
POLL_S = 0.2  # seconds between two checks of a file
MAX_BATCH = 64  # maximum number of samples in a batch


class BaseSource:
    """Base of the built-in sources; user-defined sources only need the methods of `Source`."""

    can_wait = True

    def __init__(self, sample_format: SampleFormat, heartbeat_s: float = HEARTBEAT_S) -> None:
        self.sample_format = sample_format
        self.heartbeat_s = heartbeat_s
        self.trouble = ""
        self._validator = RecordValidator(sample_format)
        self._closed = threading.Event()

    @property
    def rejected(self) -> int:
        return self._validator.rejected

    @property
    def last_rejection(self) -> str:
        return self._validator.last_rejection

    def events(self, cursor: str) -> Iterator[Event]:
        raise NotImplementedError

    def confirm(self, cursor: str) -> None:
        """Nothing to do: the position is stored only in the reader's cursor."""

    def close(self) -> None:
        self._closed.set()

    def __iter__(self) -> Iterator[Event]:
        return self.events("")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def encode_cursor(**parts: Any) -> str:
    """A cursor as canonical JSON."""
    return json.dumps(parts, separators=(",", ":"), sort_keys=True)


def decode_cursor(cursor: str, **kinds: type) -> dict[str, Any] | None:
    """The parts of a cursor with their types; None for the empty cursor."""
    if not cursor:
        return None
    try:
        parts = json.loads(cursor)
        fine = isinstance(parts, dict) and parts.keys() == kinds.keys()
        fine = fine and all(isinstance(parts[name], kind) for name, kind in kinds.items())
    except ValueError:
        fine = False
    if not fine:
        raise DataError(
            f"expected the cursor of a source with {', '.join(kinds)}, got {cursor[:100]!r}; "
            "the state folder contains data of another source."
        )
    return dict(parts)
