"""Search order for data sets.

1. the folder given by the user: ``--data-dir``, `data_dir` in Python
2. the folder in the environment variable ``THALWEG_DATA``
3. the user's cache, which contains downloads
4. well-known folders: a distribution's own, ``~/data``, ``./data``

Files of different data sets have the same names (MNIST and Fashion-MNIST). Therefore only a folder
given by the user may contain them directly; elsewhere the path must contain the name of the data
set.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from thalweg.core.errors import DataError

DATA_VARIABLE = "THALWEG_DATA"
OFFLINE_VARIABLE = "THALWEG_OFFLINE"


class SearchFolder(NamedTuple):
    """One folder in which a data set may be."""

    folder: Path
    origin: str  # reason for searching here, for messages
    is_chosen: bool  # given by the user: an incomplete data set is an error


def list_folders(
    names: Sequence[str], data_dir: Path | None, known: Sequence[Path] = ()
) -> list[SearchFolder]:
    """Folders to search, in order of priority.

    `names` are the folder names of a data set, such as ``mnist`` and ``MNIST/raw``; the first is
    ours. `known` are paths where a distribution installs it.

    >>> candidates = list_folders(["mnist", "MNIST/raw"], Path("."))
    >>> [candidate.folder.as_posix() for candidate in candidates[:3]]
    ['mnist', 'MNIST/raw', '.']
    """
    found = [
        SearchFolder(folder, origin, True)
        for root, origin in list_user_folders(data_dir)
        for folder in (*(root / name for name in names), root)
    ]
    found.append(SearchFolder(cache_folder() / names[0], "the user's cache", False))
    found += [SearchFolder(folder, "a well-known folder", False) for folder in known]
    found += [
        SearchFolder(root / name, "a well-known folder", False)
        for root in (home_folder() / "data", Path("data"))
        for name in names
    ]
    return found


def find_folder(
    wanted: Sequence[str], title: str, candidates: Sequence[SearchFolder]
) -> Path | None:
    """The first folder that has all files (or folders) of a data set; None: not found.

    An incomplete set in a folder given by the user is an error.
    """
    for candidate in candidates:
        missing = [name for name in wanted if not (candidate.folder / name).exists()]
        if not missing:
            return candidate.folder
        if len(missing) < len(wanted) and candidate.is_chosen:
            raise DataError(
                f"{candidate.folder} ({candidate.origin}) holds only "
                f"{len(wanted) - len(missing)} of the {len(wanted)} parts of {title}; missing: "
                f"{', '.join(missing)}."
            )
    return None


def not_found_error(
    title: str, why: str, ways: Sequence[str], looked_in: Sequence[SearchFolder]
) -> DataError:
    """The error for a data set that is not found, with instructions."""
    return DataError(
        f"{title} is not on this machine, and {why}.\nWays to get it:\n"
        + "".join(f"  - {way}\n" for way in ways)
        + "Looked in:\n"
        + "\n".join(f"  - {candidate.folder} ({candidate.origin})" for candidate in looked_in)
    )


def manual_instructions(what: str) -> str:
    """Instructions for a manual download."""
    return f"put {what} in a folder, and name it with --data-dir FOLDER or {DATA_VARIABLE}=FOLDER"


def find_user_file(path: str, data_dir: Path | None) -> Path:
    """The user's file: absolute, or in ``--data-dir``, the current folder, or THALWEG_DATA.

    The current folder has priority over the environment variable, as users expect.
    """
    candidates = list_candidates(path, data_dir)
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    looked = ", ".join(str(candidate) for candidate in dict.fromkeys(candidates))
    if any(candidate.is_dir() for candidate in candidates):
        raise DataError(f"{path!r} is a folder; expected one file. Searched: {looked}.")
    raise DataError(
        f"there is no file {path!r}. Searched: {looked}. "
        "Relative paths start at --data-dir, at the current folder, or at THALWEG_DATA."
    )


def find_user_folder(path: str, data_dir: Path | None) -> Path:
    """The user's folder, searched as `find_user_file` does."""
    candidates = list_candidates(path, data_dir)
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    looked = ", ".join(str(candidate) for candidate in dict.fromkeys(candidates))
    raise DataError(
        f"there is no folder {path!r}. Searched: {looked}. "
        "Relative paths start at --data-dir, at the current folder, or at THALWEG_DATA."
    )


def list_candidates(path: str, data_dir: Path | None) -> list[Path]:
    """Return where a path of the user may be, in order of priority."""
    wanted = Path(path).expanduser()
    if wanted.is_absolute():
        return [wanted]
    roots = {origin: root for root, origin in list_user_folders(data_dir)}
    before, after = roots.get("--data-dir"), roots.get(DATA_VARIABLE)
    return [root / wanted for root in (before, Path(), after) if root is not None]


def list_user_folders(data_dir: Path | None) -> list[tuple[Path, str]]:
    """Folders given by the user, with the option that gave them."""
    named = [(data_dir, "--data-dir")] if data_dir is not None else []
    if variable := os.environ.get(DATA_VARIABLE):
        named.append((Path(variable), DATA_VARIABLE))
    roots = [(folder.expanduser(), origin) for folder, origin in named]
    for folder, origin in roots:
        if not folder.is_dir():
            raise DataError(f"{origin} names {folder}, but there is no such folder.")
    return roots


def cache_folder() -> Path:
    """The cache folder of the current user."""
    import platformdirs

    return platformdirs.user_cache_path("thalweg", appauthor=False)


def home_folder() -> Path:
    return Path(os.path.expanduser("~"))  # unlike Path.home(), no error for a user without one


def is_offline() -> bool:
    """True if ``THALWEG_OFFLINE=1`` forbids downloads; empty and 0 mean no."""
    return os.environ.get(OFFLINE_VARIABLE, "") not in ("", "0")
