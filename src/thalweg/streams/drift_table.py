"""Drift from a table: a CSV file or lines in Python."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from thalweg.core.config import UPPER_BOUNDS
from thalweg.core.errors import ConfigError, DataError, require
from thalweg.core.registry import local_path
from thalweg.core.size_limits import check_text_file
from thalweg.core.transforms import make_rotation
from thalweg.core.views import View
from thalweg.streams.base import Setting
from thalweg.streams.timeline import LAST_ROUND, Timeline, ViewChange, build_timeline

REQUIRED_COLUMNS = ("client", "from_round")
OPTIONAL_COLUMNS = ("concept", "rotation", "until_round")
ALL_CLIENTS = "*"


@dataclass(frozen=True)
class DriftTable:
    """View changes from a CSV file (``client``, ``from_round``, ``concept``, ``rotation``).

    One line per change: the client (``3``, a range such as ``0-9``, or ``*`` for all clients), the
    first round of the new view counted from 0, the concept of the labels (`core.views.concept_map`;
    0 is the identity), and the rotation of images in degrees. An empty cell or a missing column
    means 0. An optional column ``until_round`` makes changes gradual. Before its first line a
    client has the identity view.
    """

    path: str = local_path(default="")
    """Path of the file, absolute or relative to the current folder."""
    lines: tuple[tuple[int, int, int, float], ...] = ()
    """(client, from_round, concept, rotation), instead of a file."""

    def __post_init__(self) -> None:
        require(
            not (self.path and self.lines),
            f"set either path or lines of a drift table, got path={self.path!r} and "
            f"{len(self.lines)} lines.",
        )

    def timeline(self, num_clients: int, setting: Setting) -> Timeline:
        require(
            bool(self.path or self.lines),
            "a drift table needs a file, such as --set drift.path=drift.csv, or lines.",
        )
        found = (
            read_drift_table(Path(self.path), num_clients, setting.num_classes)
            if self.path
            else _check_lines(self.lines, num_clients, setting.num_classes)
        )
        turns = [
            ViewChange(
                np.array([line.client]),
                np.array([line.first]),
                np.array([line.full]),
                View(make_rotation(line.rotation), line.concept),
            )
            for line in found
            if line.first < setting.rounds
        ]
        return build_timeline(turns, num_clients, setting.num_classes)


class DriftTableLine(NamedTuple):
    """One line of a table, for one client."""

    client: int
    first: int
    full: int
    concept: int
    rotation: float
    number: int  # line number


def read_drift_table(file: Path, num_clients: int, num_classes: int) -> list[DriftTableLine]:
    """Read and validate all view changes of a table, ordered by client and time."""
    try:
        check_text_file(file)
        with file.open(newline="", encoding="utf-8-sig") as text:
            reader = csv.DictReader(text, strict=True)
            lines = sorted(_parse_rows(file, reader, num_clients, num_classes), key=_sort_key)
    except OSError as error:
        raise DataError(f"cannot read the drift table {file}: {error.strerror}.") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{file} is not a readable CSV file ({error}).") from error
    if not lines:
        raise DataError(f"{file} has a header but no lines, so no client would drift.")
    if overlap := _find_overlap(lines):
        one, other = overlap
        raise DataError(
            f"{file}: lines {one.number} and {other.number} overlap: client {one.client} changes "
            f"in round {other.first}, but {_describe_line(one)}. Correct one of them."
        )
    return lines


def _parse_rows(
    file: Path, reader: csv.DictReader[str], num_clients: int, num_classes: int
) -> Iterator[DriftTableLine]:
    _check_header(file, tuple(reader.fieldnames or ()))
    total = 0  # changes of all clients
    for row in reader:
        line = f"{file}: line {reader.line_num}"
        if None in row or None in row.values():
            raise DataError(f"{line} does not have as many cells as the header.")
        cells = {name: text.strip() for name, text in row.items()}
        first = _parse_int(cells["from_round"], "from_round", line)
        full = _parse_int(cells.get("until_round") or str(first), "until_round", line)
        concept = _parse_int(cells.get("concept") or "0", "concept", line)
        rotation = _parse_angle(cells.get("rotation") or "0", line)
        if full < first:
            raise DataError(
                f"{line}: until_round {full} is before from_round {first}; leave it empty for a "
                "sudden change."
            )
        if concept > num_classes:
            raise DataError(
                f"{line}: there is no concept {concept}; with {num_classes} classes there are 0 to "
                f"{num_classes}."
            )
        clients = _parse_clients(cells["client"], num_clients, line)
        total += len(clients)
        if total > UPPER_BOUNDS["COUNT"]:
            raise DataError(
                f"{line}: the table has more than {UPPER_BOUNDS['COUNT']:,} changes of a client."
            )
        for client in clients:
            yield DriftTableLine(client, first, full, concept, rotation, reader.line_num)


def _check_lines(
    lines: tuple[tuple[int, int, int, float], ...], num_clients: int, num_classes: int
) -> list[DriftTableLine]:
    found = []
    for number, (client, first, concept, rotation) in enumerate(lines, start=1):
        require(
            0 <= client < num_clients,
            f"lines: line {number}: there is no client {client}; the world has {num_clients}, 0 to "
            f"{num_clients - 1}.",
        )
        require(0 <= first < LAST_ROUND, f"lines: line {number}: rounds count from 0, got {first}.")
        require(
            0 <= concept <= num_classes and math.isfinite(rotation),
            f"lines: line {number}: expected a concept from 0 to {num_classes} and an angle, got "
            f"{concept} and {rotation}.",
        )
        found.append(DriftTableLine(client, first, first, concept, rotation, number))
    found.sort(key=_sort_key)
    if overlap := _find_overlap(found):
        one, other = overlap
        raise ConfigError(
            f"lines: lines {one.number} and {other.number} overlap: client {one.client} changes "
            f"twice in round {one.first}."
        )
    return found


def _sort_key(line: DriftTableLine) -> tuple[int, int, int]:
    return line.client, line.first, line.number


def _find_overlap(lines: list[DriftTableLine]) -> tuple[DriftTableLine, DriftTableLine] | None:
    for one, other in itertools.pairwise(lines):
        if one.client == other.client and other.first <= one.full:
            return one, other
    return None


def _check_header(file: Path, header: tuple[str, ...]) -> None:
    unknown = [name for name in header if name not in (*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS)]
    if not set(REQUIRED_COLUMNS) <= set(header) or unknown or len(set(header)) < len(header):
        raise DataError(
            f"{file}: expected the columns {', '.join(REQUIRED_COLUMNS)} and some of "
            f"{', '.join(OPTIONAL_COLUMNS)} in the first line, got "
            f"{', '.join(header) or 'nothing'}."
        )


def _parse_clients(text: str, num_clients: int, line: str) -> range:
    """Parse ``3``, ``0-9`` (both ends included) or ``*``."""
    if text == ALL_CLIENTS:
        return range(num_clients)
    low, dash, high = text.partition("-")
    first = _parse_int(low, "client", line)
    last = _parse_int(high, "client", line) if dash else first
    if last < first:
        raise DataError(
            f"{line}: the range of clients {text} is empty; the smaller number comes first."
        )
    if last >= num_clients:
        raise DataError(
            f"{line}: there is no client {last}; the world has {num_clients}, 0 to "
            f"{num_clients - 1}."
        )
    return range(first, last + 1)


def _parse_int(text: str, name: str, line: str) -> int:
    """Parse a non-negative integer in decimal digits; stricter than `int`."""
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        hint = ", a range such as 0-9 or *" if name == "client" else ""
        raise DataError(
            f"{line}: {name} is {text!r}; expected a whole number from 0 on, such as 12{hint}."
        )
    return int(text)


def _parse_angle(text: str, line: str) -> float:
    try:
        angle = float(text)
    except ValueError:
        angle = math.nan
    if not math.isfinite(angle):
        raise DataError(f"{line}: rotation is {text!r}; expected degrees, such as 120 or -22.5.")
    return angle


def _describe_line(line: DriftTableLine) -> str:
    if line.full == line.first:
        return "it has turned in that round already"
    return f"it turns gradually from round {line.first} until round {line.full}"
