"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from thalweg.core.errors import RunError


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file under another name first, so that nobody ever reads half of it."""
    unfinished = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(content)
        os.replace(unfinished, path)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise RunError(f"cannot write {path}: {error.strerror}.") from error
