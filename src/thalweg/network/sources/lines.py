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

from thalweg.network.sources.base_source import decode_cursor, encode_cursor

MAX_LINE = 16 << 20  # bytes of a line
CHUNK = 1 << 20
DIGEST_BYTES = 64  # bytes before the place where reading stopped that must still be the same


class TextLine(NamedTuple):
    text: bytes  # without its end
    offset: int  # where the next one begins


class FilePosition(NamedTuple):
    """How far somebody has read."""

    inode: int
    offset: int  # bytes
    digest: str  # of the bytes before


class LineReader:
    """Reads a path, never waiting: whoever wants to wait asks again later."""

    def __init__(self, path: Path, cursor: str = "") -> None:
        self._path = path
        parts = decode_cursor(cursor, inode=int, offset=int, digest=str)
        self._position = None if parts is None else FilePosition(**parts)
        self._file: BinaryIO | None = None
        self._offset = 0
        self._rest = b""  # a line whose end has not come yet
        self._digest = ""
        self._was_at_end = False
        self.header = b""  # the first line of the file that is open
        self.num_unfinished = 0  # lines without an end in files that nobody writes any more

    def cursor(self, offset: int | None = None) -> str:
        """How far one is after a line of the file that is open; none: after the last that was read."""
        if self._file is None:
            return encode_cursor(**self._position._asdict()) if self._position else ""
        offset = self._offset if offset is None else offset
        inode = os.fstat(self._file.fileno()).st_ino
        return encode_cursor(inode=inode, offset=offset, digest=_digest_before(self._file, offset))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def read(self, max_lines: int) -> list[TextLine]:
        """At most so many lines that have been written since, all of one file."""
        if self._file is None and not self._open():
            return []
        lines = self._read_lines(max_lines)
        if not lines and self._was_replaced():
            self.close()
            return self.read(max_lines) if self._open() else []
        return lines

    def _read_lines(self, max_lines: int) -> list[TextLine]:
        """Lines of the file that is open."""
        assert self._file is not None
        if self._was_rewritten():
            self.num_unfinished += bool(self._rest)
            self._start_at(0)
        found: list[TextLine] = []
        while len(found) < max_lines:
            end = self._rest.find(b"\n")
            if end < 0 and len(self._rest) > MAX_LINE:
                end = MAX_LINE  # more than any record has: its reader will refuse the pieces
            if end < 0:
                self._file.seek(self._offset + len(self._rest))
                more = self._file.read(CHUNK)
                if not more:
                    break
                self._rest += more
                continue
            line, self._rest = self._rest[:end].rstrip(b"\r"), self._rest[end + 1 :]
            self.header = self.header or line
            self._offset += end + 1
            found.append(TextLine(line, self._offset))
        if found:
            self._digest = _digest_before(self._file, self._offset)
        return found

    def _was_rewritten(self) -> bool:
        """Was the file truncated or written anew since the last look?"""
        assert self._file is not None
        size = os.fstat(self._file.fileno()).st_size
        known = self._offset + len(self._rest)
        return size < known or (
            size > known and _digest_before(self._file, self._offset) != self._digest
        )

    def _was_replaced(self) -> bool:
        """Has another file taken the name of this one, and did two looks find no more in it?"""
        assert self._file is not None
        try:
            is_same = os.stat(self._path).st_ino == os.fstat(self._file.fileno()).st_ino
        except OSError:
            is_same = True  # nothing to go on with yet
        was, self._was_at_end = self._was_at_end, not is_same
        if is_same or not was:
            return False
        self.num_unfinished += bool(self._rest)
        self._position = None
        return True

    def _open(self) -> bool:
        """Open the file in which reading stopped, or the one that has the name now."""
        position, self._position = self._position, None
        for path in [] if position is None else self._find_candidates(position):
            assert position is not None
            self._file = path.open("rb")
            if _digest_before(self._file, position.offset) == position.digest:
                self._start_at(position.offset)
                return True
            self.close()
        try:
            self._file = self._path.open("rb")
        except OSError:
            self._position = position
            return False
        self._start_at(0)
        return True

    def _find_candidates(self, position: FilePosition) -> list[Path]:
        """Files in the folder that may be the one in which reading stopped."""
        try:
            with os.scandir(self._path.parent) as entries:
                return [
                    Path(e.path) for e in entries if e.inode() == position.inode and e.is_file()
                ]
        except OSError:
            return []

    def _start_at(self, offset: int) -> None:
        assert self._file is not None
        self._rest, self._offset, self._was_at_end, self.header = b"", offset, False, b""
        self._digest = _digest_before(self._file, offset)
        if offset:
            self._file.seek(0)
            self.header = self._file.readline(MAX_LINE).rstrip(b"\r\n")


def _digest_before(file: BinaryIO, offset: int) -> str:
    """Digest of the bytes before a place."""
    length = min(offset, DIGEST_BYTES)
    file.seek(offset - length)
    read = file.read(length)
    return hashlib.sha256(read).hexdigest()[:16] if len(read) == length else ""
