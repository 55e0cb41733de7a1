"""Files as they come into a folder, each once, in the order in which they were written.

The rules:

- A file counts when nobody has touched it for a moment (`SETTLED`); whoever writes slowly writes elsewhere,
  or under a name that begins with a dot, and renames it.
- Looks are stretches of time: every file that came since the last look belongs to this one, however old it
  says it is, and within a look files are read by time of writing, then by name. So one that is copied from
  elsewhere is not missed.
- A file that is written anew is a new file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from thalweg.network.sources.base import Event, SampleFormat, empty_batch
from thalweg.network.sources.base_source import (
    HEARTBEAT_S,
    MAX_BATCH,
    POLL_S,
    BaseSource,
    decode_cursor,
    encode_cursor,
)
from thalweg.network.sources.records import BrokenRecord, Record

SETTLED = 0.3  # seconds


class FoundFile(NamedTuple):
    """A file; the order of these is the order of reading."""

    written: int  # ns
    name: str  # below the folder
    path: Path
    changed_ns: int  # ns: written, renamed or copied here


class FolderPosition(NamedTuple):
    """How far somebody has read: in the look at what came after `since` and until `until`, after so many records of
    one file and everything before that file."""

    since: int = -1  # ns
    until: int = -1
    written: int = -1
    name: str = ""
    record: int = 0


RecordLoader = Callable[[FoundFile, int], Iterator[Record | BrokenRecord]]
"""Records of a file after so many of them; marks count them from 1. A file that cannot be read is a broken one."""


class FolderSource(BaseSource):
    """Records of files as they come. Can wait: what is not read yet is in the folder."""

    def __init__(
        self,
        folder: Path,
        sample_format: SampleFormat,
        load: RecordLoader,
        suffixes: tuple[str, ...],
        *,
        follow: bool = True,
        heartbeat_s: float = HEARTBEAT_S,
        poll: float = POLL_S,
        settled: float = SETTLED,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(sample_format, heartbeat_s)
        self._folder, self._load, self._suffixes, self._follow = folder, load, suffixes, follow
        self._poll, self._settled, self._now = poll, settled, clock
        self._quiet: object = None  # when the folders changed last, if all that is in them was read

    def events(self, cursor: str) -> Iterator[Event]:
        parts = decode_cursor(cursor, **{**dict.fromkeys(FolderPosition._fields, int), "name": str})
        position = self._next_scan(FolderPosition()) if parts is None else FolderPosition(**parts)
        is_new, shown = parts is None, time.monotonic()
        while True:
            for event in self._scan(position):
                shown, cursor = time.monotonic(), event.cursor
                yield event
            if self._closed.is_set() or (is_new and not self._follow):
                return
            position, is_new = self._next_scan(position), True
            if time.monotonic() - shown >= self.heartbeat_s:
                shown = time.monotonic()
                yield empty_batch(
                    self.sample_format, cursor
                )  # not how far we looked: that would be news
            self._closed.wait(min(self._poll, self.heartbeat_s))

    def _next_scan(self, last: FolderPosition) -> FolderPosition:
        """The look after a look."""
        settled = self._settled if self._follow else 0.0
        return FolderPosition(last.until, max(last.until, int((self._now() - settled) * 1e9)))

    def _scan(self, position: FolderPosition) -> Iterator[Event]:
        """What is left of a look, in batches."""
        records = self._iter_records(position)
        while not self._closed.is_set() and (some := list(islice(records, MAX_BATCH))):
            yield from self._validator.events(some, _cursor)

    def _iter_records(self, position: FolderPosition) -> Iterator[Record | BrokenRecord]:
        for found in self._find_files(position):
            here = (found.written, found.name)
            done = position.record if here == (position.written, position.name) else 0
            for record in self._load(found, done):
                mark = position._replace(written=here[0], name=here[1], record=record.mark)
                yield record._replace(mark=mark)

    def _find_files(self, position: FolderPosition) -> list[FoundFile]:
        """Files of a look that are not behind a place, in order."""
        try:
            folders = self._list_folders()
            if (stamp := [os.stat(folder).st_mtime_ns for folder in folders]) == self._quiet:
                return []
            found = [file for folder in folders for file in self._list_files(folder)]
        except OSError as error:
            self.trouble = f"{self._folder}: {error.strerror}"
            return []
        self.trouble = ""
        # Only what is whole and in its place can be left alone until a folder changes.
        self._quiet = stamp if all(file.changed_ns <= position.until for file in found) else None
        files = (file for file in found if position.since < file.changed_ns <= position.until)
        return sorted(file for file in files if (file.written, file.name) >= position[2:4])

    def _list_folders(self) -> list[Path]:
        """Where files are looked for."""
        if self._folder.is_file():
            return [self._folder.parent]
        with os.scandir(self._folder) as entries:
            below = sorted(e.path for e in entries if e.is_dir() and not e.name.startswith("."))
        return [self._folder, *map(Path, below)]

    def _list_files(self, folder: Path) -> Iterator[FoundFile]:
        is_one = self._folder.is_file()
        with os.scandir(folder) as entries:
            for entry in entries:
                path = Path(entry.path)
                if entry.name.startswith(".") or path.suffix.lower() not in self._suffixes:
                    continue
                if (is_one and path != self._folder) or not entry.is_file():
                    continue
                stat = entry.stat()
                name = entry.name if is_one else path.relative_to(self._folder).as_posix()
                yield FoundFile(stat.st_mtime_ns, name, path, stat.st_ctime_ns)


def _cursor(position: FolderPosition) -> str:
    return encode_cursor(**position._asdict())
