"""CSV and JSONL files that another program appends to."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from thalweg.core.errors import DataError
from thalweg.network.sources.base import Event, SampleFormat, empty_batch
from thalweg.network.sources.base_source import HEARTBEAT_S, MAX_BATCH, POLL_S, BaseSource
from thalweg.network.sources.fields import FIELDS, parse_field_names, with_columns
from thalweg.network.sources.lines import LineReader, TextLine
from thalweg.network.sources.records import BrokenRecord, FieldNames, Record
from thalweg.network.sources.spec import SourceSpec

LineParser = Callable[[TextLine, bytes], Record | BrokenRecord | None]
"""Parses a line, given the first line of its file; None: no record."""


class TailSource(BaseSource):
    """Records as their lines are written. Can wait: unread lines stay in the file."""

    def __init__(
        self,
        path: Path,
        sample_format: SampleFormat,
        read: LineParser,
        *,
        follow: bool = True,
        heartbeat_s: float = HEARTBEAT_S,
        poll: float = POLL_S,
    ) -> None:
        super().__init__(sample_format, heartbeat_s)
        self._path, self._read, self._follow, self._poll = path, read, follow, poll

    def events(self, cursor: str) -> Iterator[Event]:
        lines = LineReader(self._path, cursor)
        last_event, empty_reads, lost = time.monotonic(), 0, 0
        try:
            while not self._closed.is_set():
                found = self._read_lines(lines)
                records = [self._read(line, lines.header) for line in found]
                while lost < lines.num_unfinished:
                    lost += 1
                    self._validator.reject(f"a line of {self._path.name} was never finished")
                yield from self._validator.events(
                    (r for r in records if r is not None), lines.cursor
                )
                empty_reads = 0 if found else empty_reads + 1
                if (
                    empty_reads > 1 and not self._follow
                ):  # one check for the file, one for its replacement
                    return
                if time.monotonic() - last_event >= self.heartbeat_s:
                    last_event = time.monotonic()
                    yield empty_batch(self.sample_format, lines.cursor())
                if not found:
                    self._closed.wait(min(self._poll, self.heartbeat_s))
        finally:
            lines.close()

    def _read_lines(self, lines: LineReader) -> list[TextLine]:
        try:
            found = lines.read(MAX_BATCH)
        except OSError as error:
            self.trouble = f"{self._path}: {error.strerror}"
            return []
        self.trouble = "" if self._path.exists() else f"there is no file {self._path} yet"
        return found


def tail_source(spec: SourceSpec, sample_format: SampleFormat) -> TailSource:
    """``file.csv`` or ``file.jsonl``; ``follow=no`` stops at the current end of the file."""
    spec.check_options("follow", *FIELDS)
    path, sample_format = Path(spec.location), with_columns(sample_format, spec)
    names, follow = parse_field_names(spec, sample_format), spec.get_bool("follow", True)
    if path.is_dir():
        raise DataError(f"{path} is a folder; expected a file.")
    read = csv_reader(names) if path.suffix.lower() == ".csv" else json_reader(names)
    return TailSource(path, sample_format, read, follow=follow)


def json_reader(names: FieldNames) -> LineParser:
    """Every line is a JSON object; empty lines are ignored."""

    def read(line: TextLine, header: bytes) -> Record | BrokenRecord | None:
        if not line.text.strip():
            return None
        try:
            return names.read(msgspec.json.decode(line.text), line.offset)
        except (msgspec.DecodeError, RecursionError) as error:
            return BrokenRecord(
                f"expected a line of JSON, got {line.text[:40]!r} ({error})", line.offset
            )

    return read


def csv_reader(names: FieldNames) -> LineParser:
    """The first line has the column names.

    Features are the named columns, else all remaining columns.
    """

    def read(line: TextLine, header: bytes) -> Record | BrokenRecord | None:
        if not line.text.strip() or line.text == header:
            return None
        try:
            titles, values = _split_cells(header), _split_cells(line.text)
        except (UnicodeDecodeError, csv.Error) as error:
            return BrokenRecord(
                f"expected a line of CSV, got {line.text[:40]!r} ({error})", line.offset
            )
        if len(titles) != len(values):
            return BrokenRecord(
                f"expected {len(titles)} values in a line, got {len(values)}", line.offset
            )
        others = tuple(title for title in titles if title not in names.not_features)
        here = names if names.columns else names._replace(columns=others)
        return here.read(dict(zip(titles, values, strict=True)), line.offset)

    return read


def _split_cells(line: bytes) -> list[str]:
    (row,) = csv.reader([line.decode()], strict=True)
    return [cell.strip() for cell in row]
