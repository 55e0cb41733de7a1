from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from contracts.source import PLAIN, check_source, inputs_of, labels_of, read_until
from thalweg.network.sources import LiveBatch, SampleFormat, Source, open_source


def open_parquet(path: Path | str, sample_format: SampleFormat = PLAIN) -> Source:
    return open_source(f"{path}?follow=no", sample_format)


def test_parquet_columns_without_another_role_are_features(tmp_path: Path) -> None:
    moment = datetime.datetime(1970, 1, 1, 0, 1, tzinfo=datetime.UTC)
    table = pa.table(
        {"a": [1.0, 3.0], "y": [0, 2], "b": [2, 4], "t": [moment, moment], "id": ["k", "m"]}
    )
    pq.write_table(table, tmp_path / "r.parquet")
    found = check_source(lambda: open_parquet(tmp_path / "r.parquet"))
    assert found == [((1.0, 2.0), 0, "k"), ((3.0, 4.0), 2, "m")]
    (event,) = open_parquet(tmp_path / "r.parquet").events("")
    assert isinstance(event, LiveBatch)
    assert event.times.tolist() == [60.0, 60.0]


def test_parquet_list_column_can_be_the_sample(tmp_path: Path) -> None:
    table = pa.table({"x": [[1.0, 2.0], [3.0], [5.0, 6.0]], "y": ["on", "on", "off"]})
    pq.write_table(table, tmp_path / "r.parquet")
    source = open_parquet(
        tmp_path / "r.parquet", SampleFormat((2,), "float32", 2, classes=("off", "on"))
    )
    events = list(source.events(""))
    assert (inputs_of(events), labels_of(events), source.rejected) == ([[1, 2], [5, 6]], [1, 0], 1)


def test_parquet_source_resumes_within_a_row_group(tmp_path: Path) -> None:
    labels = [i % 3 for i in range(500)]
    table = pa.table({"a": [float(i) for i in range(500)], "b": [0.0] * 500, "y": labels})
    pq.write_table(table, tmp_path / "r.parquet", row_group_size=150)
    found = check_source(lambda: open_parquet(tmp_path / "r.parquet"))
    assert [x for (x, _), _, _ in found] == list(range(500))


def test_parquet_files_are_read_as_they_arrive_and_damaged_ones_skipped(tmp_path: Path) -> None:
    source = open_source(f"{tmp_path}/", PLAIN)
    events = source.events("")
    for number in range(3):
        path = tmp_path / f"part-{number}.parquet"
        if number == 1:
            path.write_bytes(b"PAR1 but no more")
        else:
            pq.write_table(pa.table({"a": [1.0], "b": [2.0], "y": [number]}), path)
            assert labels_of(read_until(events, 1)) == [number]
    assert source.rejected == 1
    assert "part-1.parquet is not a readable Parquet file" in source.last_rejection
    source.close()


def test_parquet_rows_with_missing_values_are_rejected_and_missing_labels_are_late(
    tmp_path: Path,
) -> None:
    table = pa.table(
        {"a": [1.0, None, 3.0], "b": [2.0, 2.0, 2.0], "y": [None, 0, 1], "id": ["k", "m", "n"]}
    )
    pq.write_table(table, tmp_path / "r.parquet")
    source = open_parquet(tmp_path / "r.parquet")
    assert labels_of(list(source.events(""))) == [-1, 1]
    assert source.last_rejection == "no value for 'a'"
