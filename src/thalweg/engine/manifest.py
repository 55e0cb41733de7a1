"""Manifests of run folders: the files of a round, with their sizes and checksums.

A manifest is written last. A round that has one is complete; files and lines that no manifest
contains belong to a round that was interrupted.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from thalweg import __version__
from thalweg.core.errors import RunError
from thalweg.core.files import Digest, digest_file, seal, unseal, write_file

FORMAT = 1  # of run folders; increase it whenever older folders can no longer be resumed
MAX_BYTES = 1 << 24  # of a manifest
NAME = re.compile(r"manifest-(\d{8})\.json")
CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class Manifest:
    """The files of a run after a round. Names are relative to the run folder."""

    rnd: int
    files: Mapping[str, Digest]  # needed to resume; of files that grow, the complete lines
    results: Mapping[str, Digest] = field(default_factory=dict)  # of a finished run
    version: str = __version__


def manifest_path(folder: Path, rnd: int) -> Path:
    """Return the path of the manifest of a round."""
    return folder / CHECKPOINT / f"manifest-{rnd:08d}.json"


def list_rounds(folder: Path) -> list[int]:
    """Return the rounds that have a manifest, the newest first."""
    try:
        names = [NAME.fullmatch(path.name) for path in (folder / CHECKPOINT).iterdir()]
    except OSError:
        return []
    return sorted((int(name[1]) for name in names if name), reverse=True)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a manifest; the caller synchronises its folder."""
    plain = {
        "format": FORMAT,
        "thalweg": manifest.version,
        "round": manifest.rnd,
        "files": {name: list(digest) for name, digest in sorted(manifest.files.items())},
        "results": {name: list(digest) for name, digest in sorted(manifest.results.items())},
    }
    write_file(manifest_path(folder, manifest.rnd), seal(plain))


def read_manifest(folder: Path, rnd: int) -> Manifest:
    """Read the manifest of a round; raise RunError if it is damaged or of another format."""
    path = manifest_path(folder, rnd)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES} bytes")
        plain = unseal(path.read_bytes())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RunError(f"{path} is damaged: {reason}.") from error
    if plain.get("format") != FORMAT:
        raise UnknownFormat(
            f"{folder} has run folder format {plain.get('format')}, written by thalweg "
            f"{plain.get('thalweg')}, but this version, {__version__}, reads format {FORMAT}. "
            "Resume it with that version, or start a new run."
        )
    try:
        files, results = (_read_digests(plain[name]) for name in ("files", "results"))
        if plain["round"] != rnd:
            raise ValueError(f"it is that of round {plain['round']}")
        return Manifest(rnd, files, results, str(plain["thalweg"]))
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path} is damaged: {error}.") from error


class UnknownFormat(RunError):
    """A run folder has another format."""


class Checks:
    """Comparisons of the files of a folder with their digests; each intact file is read once.

    A file is read again if its size or its time of change is another one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._intact: dict[str, tuple[tuple[int, int], Digest]] = {}

    def find_damage(
        self, files: Mapping[str, Digest], growing: Iterable[str] = ()
    ) -> dict[str, str]:
        """Return the files that are missing or changed, and why; `growing` ones may be longer."""
        found = {}
        for name, expected in files.items():
            try:
                reason = self._compare(name, expected, is_growing=name in growing)
            except FileNotFoundError:
                reason = "missing"
            except OSError as error:
                reason = str(error.strerror)
            if reason:
                found[name] = reason
        return found

    def _compare(self, name: str, expected: Digest, *, is_growing: bool) -> str:
        """Return why a file is not the expected one; empty: it is."""
        status = (self._folder / name).stat()
        if stat.S_ISDIR(status.st_mode):
            return "a folder"
        size, stamp = status.st_size, (status.st_size, status.st_mtime_ns)
        if size < expected.size or (size > expected.size and not is_growing):
            return f"{size} bytes, expected {expected.size}"
        before, intact = self._intact.get(name, (None, expected))
        # The start of lines that are intact is intact, too.
        is_known = intact == expected or (is_growing and intact.size > expected.size)
        if before == stamp and is_known:
            return ""
        if digest_file(self._folder / name, expected.size) != expected:
            return "its content was changed"
        self._intact[name] = (stamp, expected)
        return ""


def describe_damage(damage: Mapping[str, str]) -> str:
    """Return the result of `Checks.find_damage` in one line.

    >>> describe_damage({"plan.toml": "missing", "model.safetensors": "3 bytes, expected 9"})
    'plan.toml (missing), model.safetensors (3 bytes, expected 9)'
    """
    return ", ".join(f"{name} ({reason})" for name, reason in damage.items())


def _read_digests(plain: Mapping[str, Any]) -> dict[str, Digest]:
    digests = {}
    for name, (size, checksum) in plain.items():
        parts = PurePosixPath(name).parts
        if not parts or ".." in parts or PurePosixPath(name).is_absolute() or type(size) is not int:
            raise ValueError(f"{name!r} is not the name of a file in the folder")
        digests[name] = Digest(size, str(checksum))
    return digests
