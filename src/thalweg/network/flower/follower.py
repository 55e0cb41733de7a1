"""Reading files that other processes write to."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Follower:
    """Whole lines as they are appended to a file; from its start again if it is replaced or shortened."""

    def __init__(self, path: Path, from_end: bool = False) -> None:
        self._path, self._rest = path, b""
        self._inode, self._at = 0, 0
        if from_end and path.exists():
            status = path.stat()
            self._inode, self._at = status.st_ino, status.st_size

    def read_lines(self) -> list[str]:
        """What has come since the last call; a line that is being written waits for its end."""
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._at:
                    self._inode, self._at, self._rest = status.st_ino, 0, b""
                file.seek(self._at)
                some = file.read()
        except OSError:
            return []
        self._at += len(some)
        *whole, self._rest = (self._rest + some).split(b"\n")
        return [line.decode(errors="replace") for line in whole]

    def read_objects(self) -> list[dict[str, Any]]:
        """Those lines that are JSON objects; whatever else is said in between is passed over."""
        found = []
        for line in self.read_lines():
            if line.startswith("{"):
                try:
                    value = json.loads(line)
                except json.JSONDecodeError:
                    continue
                found.append(value)
        return found
