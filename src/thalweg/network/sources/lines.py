"""Complete lines of a file that grows, is rotated or is truncated, with resumable positions.

Rules:

- A line is read when its end has been written.
- A renamed file is read to its end before the new file of the same name is read, also if it was
  renamed (once) while the reader was stopped, as long as the old file is in the same folder.
- A file that is shorter than the position, or whose content before the position has changed, is
  read from the beginning.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO, NamedTuple

from thalweg.network.sources.base_source import decode_cursor, encode_cursor

MAX_LINE = 16 << 20  # maximum length in bytes
CHUNK = 1 << 20
DIGEST_BYTES = 64  # bytes before the position that must be unchanged


class TextLine(NamedTuple):
    text: bytes  # without the line ending
    offset: int  # start of the next line


class FilePosition(NamedTuple):
    """Position of a reader."""

    inode: int
    offset: int  # bytes
    digest: str  # of the bytes before the position


class LineReader:
    """Reads lines without blocking."""

    def __init__(self, path: Path, cursor: str = "") -> None:
        self._path = path
        parts = decode_cursor(cursor, inode=int, offset=int, digest=str)
        self._position = None if parts is None else FilePosition(**parts)
        self._file: BinaryIO | None = None
        self._offset = 0
        self._rest = b""  # an incomplete line
        self._digest = ""
        self._was_at_end = False
        self.header = b""  # first line of the open file
        self.num_unfinished = 0  # incomplete lines at the ends of replaced files

    def cursor(self, offset: int | None = None) -> str:
        """Position after a line of the open file; None: after the last line read."""
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
        """At most `max_lines` new lines, all from one file."""
        if self._file is None and not self._open():
            return []
        lines = self._read_lines(max_lines)
        if not lines and self._was_replaced():
            self.close()
            return self.read(max_lines) if self._open() else []
        return lines

    def _read_lines(self, max_lines: int) -> list[TextLine]:
        """Lines of the open file."""
        assert self._file is not None
        if self._was_rewritten():
            self.num_unfinished += bool(self._rest)
            self._start_at(0)
        found: list[TextLine] = []
        while len(found) < max_lines:
            end = self._rest.find(b"\n")
            if end < 0 and len(self._rest) > MAX_LINE:
                end = MAX_LINE  # longer than any record: the pieces are rejected later
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
        """True if the file was truncated or rewritten."""
        assert self._file is not None
        size = os.fstat(self._file.fileno()).st_size
        known = self._offset + len(self._rest)
        return size < known or (
            size > known and _digest_before(self._file, self._offset) != self._digest
        )

    def _was_replaced(self) -> bool:
        """True if another file has taken this name and two reads found nothing new."""
        assert self._file is not None
        try:
            is_same = os.stat(self._path).st_ino == os.fstat(self._file.fileno()).st_ino
        except OSError:
            is_same = True  # not known yet
        was, self._was_at_end = self._was_at_end, not is_same
        if is_same or not was:
            return False
        self.num_unfinished += bool(self._rest)
        self._position = None
        return True

    def _open(self) -> bool:
        """Open the file of the last position, or the file that has the name now."""
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
        """Files in the folder that may be the file of the last position."""
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
    """Digest of the bytes before a position."""
    length = min(offset, DIGEST_BYTES)
    file.seek(offset - length)
    read = file.read(length)
    return hashlib.sha256(read).hexdigest()[:16] if len(read) == length else ""
