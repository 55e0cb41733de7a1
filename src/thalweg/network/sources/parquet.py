"""Parquet files: a single file, or files that arrive in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from thalweg.network.sources.base import SampleFormat
from thalweg.network.sources.base_source import MAX_BATCH
from thalweg.network.sources.fields import FIELDS, parse_field_names, with_columns
from thalweg.network.sources.folder import FolderSource, FoundFile, RecordLoader
from thalweg.network.sources.records import BrokenRecord, FieldNames, Record
from thalweg.network.sources.spec import SourceSpec


def parquet_source(spec: SourceSpec, sample_format: SampleFormat) -> FolderSource:
    """``file.parquet``, or a folder of such files.

    Each is read when it is complete, and again when replaced.
    """
    spec.check_options("follow", *FIELDS)
    sample_format = with_columns(sample_format, spec)
    load = row_loader(parse_field_names(spec, sample_format))
    return FolderSource(
        Path(spec.location),
        sample_format,
        load,
        (".parquet",),
        follow=spec.get_bool("follow", True),
    )


def row_loader(names: FieldNames) -> RecordLoader:
    """Rows as records: a list column (``x``), the named columns, or all remaining columns."""

    def load(found: FoundFile, done: int) -> Iterator[Record | BrokenRecord]:
        import pyarrow as pa

        row = done
        try:
            for fields in _iter_rows(found.path, done):
                row += 1
                yield _infer_columns(names, fields).read(fields, row)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())[:100]
            yield BrokenRecord(f"{found.name} is not a readable Parquet file ({reason})", row)

    return load


def _infer_columns(names: FieldNames, fields: dict[str, object]) -> FieldNames:
    if names.columns or names.x in fields:
        return names
    others = (name for name in fields if name not in names.not_features)
    return names._replace(columns=tuple(others))


def _iter_rows(path: Path, skip: int) -> Iterator[dict[str, object]]:
    """Rows as mappings after a number of them; whole row groups are skipped without reading."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        for group in range(file.num_row_groups):
            length = file.metadata.row_group(group).num_rows
            if skip >= length:
                skip -= length
                continue
            for batch in file.iter_batches(batch_size=MAX_BATCH, row_groups=[group]):
                rows = batch.slice(min(skip, len(batch)))
                skip = max(skip - len(batch), 0)
                yield from rows.to_pylist()
