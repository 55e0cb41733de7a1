"""Session membership from a file."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.errors import DataError, require
from thalweg.core.registry import local_path
from thalweg.core.size_limits import check_text_file
from thalweg.streams.sessions import Timetable

COLUMNS = ("client", "join", "leave")
LAST_ROUND = 2**53  # larger than any round number


@dataclass(frozen=True)
class Trace:
    """Stays from a CSV file with the columns ``client``, ``join`` and ``leave``.

    One line per stay: the client id counted from 0, the first round of membership, and the first
    round after it; an empty cell means that the client stays until the end. A client may return any
    number of times. Other columns and rounds after the end of the run are ignored.
    """

    path: str = local_path(default="")
    """Path of the file, absolute or relative to the current folder."""
    tolerance: float = 0.0
    """Share of all old and new members that must differ before a new session begins."""

    def __post_init__(self) -> None:
        check_ranges(self, tolerance="[0, 1]")

    def timetable(self, num_clients: int, rounds: int, seed: int) -> Timetable:
        require(self.path != "", "a trace needs a file, such as --set sessions.path=stays.csv.")
        stays = read_stays(Path(self.path), num_clients)
        now = [stay for stay in stays if stay.join < rounds]
        if not now:
            raise DataError(
                f"{self.path}: none of its {len(stays)} stays begins within the {rounds} rounds of "
                "the run, so no client would train. join and leave must be rounds counted from 0."
            )
        clients, first, after = np.array(
            [(stay.client, stay.join, min(stay.leave, rounds)) for stay in now], dtype=np.int64
        ).T
        return Timetable(num_clients, rounds, clients, first, after, self.tolerance)


class Stay(NamedTuple):
    """One line of a trace."""

    client: int
    join: int
    leave: int
    line: int


def read_stays(file: Path, num_clients: int) -> list[Stay]:
    """Read and validate all stays of a trace, ordered by client and time."""
    try:
        check_text_file(file)
        with file.open(newline="", encoding="utf-8-sig") as lines:
            stays = sorted(_parse_stays(file, csv.DictReader(lines, strict=True), num_clients))
    except OSError as error:
        raise DataError(f"cannot read the trace {file}: {error.strerror}.") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{file} is not a readable CSV file ({error}).") from error
    for one, other in itertools.pairwise(stays):
        if one.client == other.client and other.join < one.leave:
            raise DataError(
                f"{file}: lines {one.line} and {other.line} overlap: client {one.client} joins in "
                f"round {other.join}, but {_describe_stay(one)}. Merge the two lines or correct "
                "one of them."
            )
    return stays


def _parse_stays(file: Path, reader: csv.DictReader[str], num_clients: int) -> Iterator[Stay]:
    header = reader.fieldnames or ()
    if not set(COLUMNS) <= set(header):
        raise DataError(
            f"{file}: expected the columns {', '.join(COLUMNS)} in the first line, got "
            f"{', '.join(header) or 'nothing'}."
        )
    for row in reader:
        line = f"{file}: line {reader.line_num}"
        if None in row or None in row.values():
            raise DataError(f"{line} does not have as many cells as the header.")
        client, join = (_parse_int(row[name], name, line) for name in ("client", "join"))
        leave = _parse_int(row["leave"], "leave", line) if row["leave"].strip() else LAST_ROUND
        if client >= num_clients:
            raise DataError(
                f"{line}: there is no client {client}; the world has {num_clients}, 0 to "
                f"{num_clients - 1}."
            )
        if leave <= join:
            raise DataError(
                f"{line}: client {client} joins in round {join} and leaves in round {leave}; a "
                "stay must last at least one round (leave is the first round without the client)."
            )
        yield Stay(client, join, leave, reader.line_num)


def _parse_int(text: str, name: str, line: str) -> int:
    """Parse a non-negative integer in decimal digits; stricter than `int`."""
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        hint = " (empty: it never leaves)" if name == "leave" else ""
        raise DataError(
            f"{line}: {name} is {text!r}; expected a whole number from 0 on{hint}, such as 12."
        )
    return int(text)


def _describe_stay(stay: Stay) -> str:
    if stay.leave == LAST_ROUND:
        return f"it is present from round {stay.join} on and never leaves"
    return f"it is present from round {stay.join} until it leaves in round {stay.leave}"
