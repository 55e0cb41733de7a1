"""The code files that a plan on disk names, and whether they may be imported.

A plan contains text, but it can name classes and functions of Python files, which are imported when
the plan is read or its model is built. The plan of a run folder that another user can change could
thus run any code. `check_code_files` rejects such plans before anything is imported.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from thalweg.core.errors import ConfigError

TRUST_CODE = "THALWEG_TRUST_CODE"  # environment variable


def list_code_files(plain: Any) -> list[Path]:
    """Return the existing Python files that the texts of a plan name, without importing them.

    Modules (``package.module:NAME``) are not listed: Python finds them in its own path.
    """
    return list(dict.fromkeys(_find_code_files(plain)))


def check_code_files(plain: Mapping[str, Any], plan: Path) -> None:
    """Reject a plan that names code if others could have written the code or the plan.

    `plan` is a run folder or a file. A file or folder is accepted if it belongs to the current user
    or to root and not every user can write to it. A run folder cannot contain code itself.
    """
    files = list_code_files(plain)
    if not files or os.environ.get(TRUST_CODE, "0") not in ("", "0"):
        return
    folder = plan if plan.is_dir() else plan.parent
    for file in files:
        reason = None
        if plan.is_dir() and file.is_relative_to(folder.resolve()):
            reason = "this file is in the run folder, to which thalweg writes no code"
        paths = (folder, folder / "plan.toml" if plan.is_dir() else plan, file.parent, file)
        reason = reason or next(filter(None, map(find_foreign_access, paths)), None)
        if reason is not None:
            raise ConfigError(
                f"{plan} names code that would be imported, {file}, but {reason}. Expected files "
                "that belong to you and that other users cannot change. Read the plan and the "
                f"code; if you trust both, set {TRUST_CODE}=1, or correct owner and mode."
            )


def find_foreign_access(path: Path) -> str | None:
    """Return how another user could have changed a file or folder; None if that is not possible.

    Without user ids (Windows), nothing is known and None is returned.
    """
    if not hasattr(os, "getuid"):
        return None
    info = path.stat()
    if info.st_uid not in (os.getuid(), 0):
        return f"{path} belongs to another user (id {info.st_uid})"
    is_sticky_folder = stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX
    if info.st_mode & stat.S_IWOTH and not is_sticky_folder:
        return f"every user can write to {path}"
    return None


def _find_code_files(value: Any) -> Iterator[Path]:
    """Yield the files of all parts of texts that end before ``:NAME``, such as ``gain=f.py:g``."""
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _find_code_files(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _find_code_files(each)
    elif isinstance(value, str):
        for end in (found.start() + 3 for found in re.finditer(r"\.py:", value)):
            starts = [0, *(found.end() for found in re.finditer(r"[=,;:\s]", value[:end]))]
            for candidate in (value[start:end] for start in starts):
                if "\0" not in candidate and Path(candidate).is_file():
                    yield Path(candidate).resolve()
