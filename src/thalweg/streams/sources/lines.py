"""Whole lines of a file that grows, is rotated or is truncated; and where to go on.

The rules:

- A line counts when its end has been written.
- A file that was renamed is read to its end before the new one under its old name is begun, also if that
  happened, once, while nobody was reading, as long as the old file is still in the same folder.
- A file that is shorter than what was read of it, or says something else where reading stopped, was written
  anew: it is read from its beginning.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO, NamedTuple

from thalweg.streams.sources.reading import cursor_parts, cursor_text

LONGEST = 16 << 20  # bytes of a line
CHUNK = 1 << 20
SEALED = 64  # bytes before the place where reading stopped that must still be the same


class Line(NamedTuple):
    text: bytes  # without its end
    at: int  # where the next one begins


class Place(NamedTuple):
    """How far somebody has read."""

    inode: int
    at: int  # bytes
    seal: str  # of the bytes before


class Lines:
    """Reads a path, never waiting: whoever wants to wait asks again later."""

    def __init__(self, path: Path, cursor: str = "") -> None:
        self._path = path
        parts = cursor_parts(cursor, inode=int, at=int, seal=str)
        self._place = None if parts is None else Place(**parts)
        self._file: BinaryIO | None = None
        self._at = 0
        self._rest = b""  # a line whose end has not come yet
        self._sealed = ""
        self._was_at_end = False
        self.header = b""  # the first line of the file that is open
        self.unfinished = 0  # lines without an end in files that nobody writes any more

    def cursor(self, at: int | None = None) -> str:
        """How far one is after a line of the file that is open; none: after the last that was read."""
        if self._file is None:
            return cursor_text(**self._place._asdict()) if self._place else ""
        at = self._at if at is None else at
        inode = os.fstat(self._file.fileno()).st_ino
        return cursor_text(inode=inode, at=at, seal=_seal(self._file, at))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def read(self, most: int) -> list[Line]:
        """At most so many lines that have been written since, all of one file."""
        if self._file is None and not self._open():
            return []
        lines = self._lines(most)
        if not lines and self._is_over():
            self.close()
            return self.read(most) if self._open() else []
        return lines

    def _lines(self, most: int) -> list[Line]:
        """Lines of the file that is open."""
        assert self._file is not None
        if self._is_another():
            self.unfinished += bool(self._rest)
            self._begin(0)
        found: list[Line] = []
        while len(found) < most:
            end = self._rest.find(b"\n")
            if end < 0 and len(self._rest) > LONGEST:
                end = LONGEST  # more than any record has: its reader will refuse the pieces
            if end < 0:
                self._file.seek(self._at + len(self._rest))
                more = self._file.read(CHUNK)
                if not more:
                    break
                self._rest += more
                continue
            line, self._rest = self._rest[:end].rstrip(b"\r"), self._rest[end + 1 :]
            self.header = self.header or line
            self._at += end + 1
            found.append(Line(line, self._at))
        if found:
            self._sealed = _seal(self._file, self._at)
        return found

    def _is_another(self) -> bool:
        """Was the file truncated or written anew since the last look?"""
        assert self._file is not None
        size = os.fstat(self._file.fileno()).st_size
        known = self._at + len(self._rest)
        return size < known or (size > known and _seal(self._file, self._at) != self._sealed)

    def _is_over(self) -> bool:
        """Has another file taken the name of this one, and did two looks find no more in it?"""
        assert self._file is not None
        try:
            is_same = os.stat(self._path).st_ino == os.fstat(self._file.fileno()).st_ino
        except OSError:
            is_same = True  # nothing to go on with yet
        was, self._was_at_end = self._was_at_end, not is_same
        if is_same or not was:
            return False
        self.unfinished += bool(self._rest)
        self._place = None
        return True

    def _open(self) -> bool:
        """Open the file in which reading stopped, or the one that has the name now."""
        place, self._place = self._place, None
        for path in [] if place is None else self._homes(place):
            assert place is not None
            self._file = path.open("rb")
            if _seal(self._file, place.at) == place.seal:
                self._begin(place.at)
                return True
            self.close()
        try:
            self._file = self._path.open("rb")
        except OSError:
            self._place = place
            return False
        self._begin(0)
        return True

    def _homes(self, place: Place) -> list[Path]:
        """Files in the folder that may be the one in which reading stopped."""
        try:
            with os.scandir(self._path.parent) as entries:
                return [Path(e.path) for e in entries if e.inode() == place.inode and e.is_file()]
        except OSError:
            return []

    def _begin(self, at: int) -> None:
        assert self._file is not None
        self._rest, self._at, self._was_at_end, self.header = b"", at, False, b""
        self._sealed = _seal(self._file, at)
        if at:
            self._file.seek(0)
            self.header = self._file.readline(LONGEST).rstrip(b"\r\n")


def _seal(file: BinaryIO, at: int) -> str:
    """Digest of the bytes before a place."""
    length = min(at, SEALED)
    file.seek(at - length)
    read = file.read(length)
    return hashlib.sha256(read).hexdigest()[:16] if len(read) == length else ""
