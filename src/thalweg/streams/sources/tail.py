"""CSV and JSONL files that somebody else writes to, line by line."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from thalweg.core.errors import DataError
from thalweg.streams.sources.base import Event, Form, nothing
from thalweg.streams.sources.fields import FIELDS, names_of, with_columns
from thalweg.streams.sources.lines import Line, Lines
from thalweg.streams.sources.reading import MOST, PATIENCE, POLL, Reading
from thalweg.streams.sources.records import Broken, Names, Record
from thalweg.streams.sources.spec import Spec

Read = Callable[[Line, bytes], Record | Broken | None]
"""Of a line and the first line of its file; none: it holds no record."""


class TailSource(Reading):
    """Records as their lines are written. Can wait: what is not read yet is in the file."""

    def __init__(
        self,
        path: Path,
        form: Form,
        read: Read,
        *,
        follow: bool = True,
        patience: float = PATIENCE,
        poll: float = POLL,
    ) -> None:
        super().__init__(form, patience)
        self._path, self._read, self._follow, self._poll = path, read, follow, poll

    def events(self, cursor: str) -> Iterator[Event]:
        lines, shown, looks, lost = Lines(self._path, cursor), time.monotonic(), 0, 0
        try:
            while not self._closed.is_set():
                found = self._look(lines)
                records = [self._read(line, lines.header) for line in found]
                while lost < lines.unfinished:
                    lost += 1
                    self._sieve.refuse(f"a line of {self._path.name} was never finished")
                yield from self._sieve.events((r for r in records if r is not None), lines.cursor)
                looks = 0 if found else looks + 1
                if (
                    looks > 1 and not self._follow
                ):  # one look for the file, one for what took its name
                    return
                if time.monotonic() - shown >= self.patience:
                    shown = time.monotonic()
                    yield nothing(self.form, lines.cursor())
                if not found:
                    self._closed.wait(min(self._poll, self.patience))
        finally:
            lines.close()

    def _look(self, lines: Lines) -> list[Line]:
        try:
            found = lines.read(MOST)
        except OSError as error:
            self.trouble = f"{self._path}: {error.strerror}"
            return []
        self.trouble = "" if self._path.exists() else f"there is no file {self._path} yet"
        return found


def tail_source(spec: Spec, form: Form) -> TailSource:
    """``file.csv`` or ``file.jsonl``; ``follow=no`` ends with what is there."""
    spec.only("follow", *FIELDS)
    path, form = Path(spec.place), with_columns(form, spec)
    names, follow = names_of(spec, form), spec.flag("follow", True)
    if path.is_dir():
        raise DataError(f"{path} is a folder; expected a file.")
    read = csv_reader(names) if path.suffix.lower() == ".csv" else json_reader(names)
    return TailSource(path, form, read, follow=follow)


def json_reader(names: Names) -> Read:
    """Every line is an object; empty lines are nothing."""

    def read(line: Line, header: bytes) -> Record | Broken | None:
        if not line.text.strip():
            return None
        try:
            return names.read(msgspec.json.decode(line.text), line.at)
        except (msgspec.DecodeError, RecursionError) as error:
            return Broken(f"expected a line of JSON, got {line.text[:40]!r} ({error})", line.at)

    return read


def csv_reader(names: Names) -> Read:
    """The first line of a file has the names; features are the named columns, or all that have no other part."""

    def read(line: Line, header: bytes) -> Record | Broken | None:
        if not line.text.strip() or line.text == header:
            return None
        try:
            titles, values = _cells(header), _cells(line.text)
        except (UnicodeDecodeError, csv.Error) as error:
            return Broken(f"expected a line of CSV, got {line.text[:40]!r} ({error})", line.at)
        if len(titles) != len(values):
            return Broken(f"expected {len(titles)} values in a line, got {len(values)}", line.at)
        others = tuple(title for title in titles if title not in (names.y, names.t, names.id))
        here = names if names.columns else names._replace(columns=others)
        return here.read(dict(zip(titles, values, strict=True)), line.at)

    return read


def _cells(line: bytes) -> list[str]:
    (row,) = csv.reader([line.decode()], strict=True)
    return [cell.strip() for cell in row]
