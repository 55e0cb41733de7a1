"""Files that arrive in a folder, each read once, in the order of writing.

Rules:

- A file is read when it has not changed for `SETTLED` seconds. Slow writers should write elsewhere,
  or under a name that begins with a dot, and rename the file.
- Changes that are younger than `TICK` are left to the next scan, because a later change can get the
  same time.
- Scans cover intervals of time: every file that appeared since the last scan belongs to the current
  one, whatever its modification time. Within a scan, files are ordered by modification time, then
  by name. Copied files with old modification times are therefore not missed.
- A file that replaces another one is a new file. A file that is changed in place is noticed only
  when the folder changes next.
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
TICK = 0.02  # seconds; file times lag behind the clock by a tick of the kernel, up to 10 ms


class FoundFile(NamedTuple):
    """A file; the sort order is the order of reading."""

    written: int  # ns
    name: str  # relative to the folder
    path: Path
    changed_ns: int  # ns: time of writing, renaming or copying


class FolderPosition(NamedTuple):
    """Position of a reader: the scan of files that appeared after `since` and until `until`, the
    last file, and the number of its records that were read.
    """

    since: int = -1  # ns
    until: int = -1
    written: int = -1
    name: str = ""
    record: int = 0


RecordLoader = Callable[[FoundFile, int], Iterator[Record | BrokenRecord]]
"""Records of a file after a number of them; marks count from 1.

An unreadable file is a broken record.
"""


class FolderSource(BaseSource):
    """Records of files as they arrive. Can wait: unread files stay in the folder."""

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
        self._quiet: object = None  # last modification of the folders, if all their files were read

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
                )  # without the scan time, which would count as progress
            self._closed.wait(min(self._poll, self.heartbeat_s))

    def _next_scan(self, last: FolderPosition) -> FolderPosition:
        """The scan after another scan."""
        settled = max(self._settled, TICK) if self._follow else 0.0
        return FolderPosition(last.until, max(last.until, int((self._now() - settled) * 1e9)))

    def _scan(self, position: FolderPosition) -> Iterator[Event]:
        """The rest of a scan in batches."""
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
        """Files of a scan after a position, in order."""
        try:
            folders = self._list_folders()
            if (stamp := [os.stat(folder).st_mtime_ns for folder in folders]) == self._quiet:
                return []
            found = [file for folder in folders for file in self._list_files(folder)]
        except OSError as error:
            self.trouble = f"{self._folder}: {error.strerror}"
            return []
        self.trouble = ""
        # Only complete files in settled folders allow skipping scans until a folder changes.
        changed = [*stamp, *(file.changed_ns for file in found)]
        self._quiet = stamp if max(changed) <= position.until else None
        files = (file for file in found if position.since < file.changed_ns <= position.until)
        return sorted(file for file in files if (file.written, file.name) >= position[2:4])

    def _list_folders(self) -> list[Path]:
        """Folders to scan."""
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
