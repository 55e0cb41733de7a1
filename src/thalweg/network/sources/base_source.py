"""What all sources have in common: a sieve, a way to stop, and how often they show that they are alive."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from thalweg.core.errors import DataError
from thalweg.network.sources.base import Event, SampleFormat
from thalweg.network.sources.records import RecordValidator

HEARTBEAT_S = 1.0  # seconds between signs of life
POLL_S = 0.2  # seconds between looks at a file
MAX_BATCH = 64  # samples in a batch


class BaseSource:
    """Base of our own sources; any object with the methods of `Source` is one, too."""

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
        """Nothing to do: nobody but the reader's own cursor remembers how far it is."""

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
    """A cursor: a little JSON, always the same for the same place."""
    return json.dumps(parts, separators=(",", ":"), sort_keys=True)


def decode_cursor(cursor: str, **kinds: type) -> dict[str, Any] | None:
    """What a cursor says, each part of its type; none for the empty one."""
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
            "it is of another source, so this folder has data from elsewhere."
        )
    return dict(parts)
