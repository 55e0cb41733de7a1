"""Parquet files: one, or parts of a table that come into a folder one after another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from thalweg.streams.sources.base import Form
from thalweg.streams.sources.fields import FIELDS, names_of, with_columns
from thalweg.streams.sources.folder import FolderSource, Found, Load
from thalweg.streams.sources.reading import MOST
from thalweg.streams.sources.records import Broken, Names, Record
from thalweg.streams.sources.spec import Spec


def parquet_source(spec: Spec, form: Form) -> FolderSource:
    """``file.parquet``, or a folder of such files; each is read when it is whole, and again when it is replaced."""
    spec.only("follow", *FIELDS)
    form = with_columns(form, spec)
    load = rows_of(names_of(spec, form))
    return FolderSource(
        Path(spec.place), form, load, (".parquet",), follow=spec.flag("follow", True)
    )


def rows_of(names: Names) -> Load:
    """Rows as records: a column of lists (``x``), else the named columns, else all that have no other part."""

    def load(found: Found, done: int) -> Iterator[Record | Broken]:
        import pyarrow as pa

        row = done
        try:
            for fields in _rows(found.path, done):
                row += 1
                yield _with_columns(names, fields).read(fields, row)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())[:100]
            yield Broken(f"{found.name} is not a readable Parquet file ({reason})", row)

    return load


def _with_columns(names: Names, fields: dict[str, object]) -> Names:
    if names.columns or names.x in fields:
        return names
    others = (name for name in fields if name not in (names.y, names.t, names.id))
    return names._replace(columns=tuple(others))


def _rows(path: Path, skip: int) -> Iterator[dict[str, object]]:
    """Rows as objects, after so many of them; whole row groups are skipped without being read."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        for group in range(file.num_row_groups):
            length = file.metadata.row_group(group).num_rows
            if skip >= length:
                skip -= length
                continue
            for batch in file.iter_batches(batch_size=MOST, row_groups=[group]):
                rows = batch.slice(min(skip, len(batch)))
                skip = max(skip - len(batch), 0)
                yield from rows.to_pylist()
