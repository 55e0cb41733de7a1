"""Files that would need too much memory are rejected before they are read."""

from __future__ import annotations

import gzip
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from thalweg.core import size_limits
from thalweg.core.errors import ConfigError, DataError
from thalweg.data.array_folder import ArrayFolder
from thalweg.data.columns import read_column, read_rows, read_table
from thalweg.data.idx import read_idx
from thalweg.data.npz import read_npz
from thalweg.data.own import dataset_from_table
from thalweg.engine.plan import make_plan, plan_from_toml, plan_to_toml, read_plan
from thalweg.streams.drift_table import read_drift_table
from thalweg.streams.trace import read_stays


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 2000 bytes of memory, of which half may be used."""
    monkeypatch.setattr(size_limits, "get_memory_bytes", lambda: 2000)


@pytest.fixture
def strict_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Archives above 1000 bytes are suspicious."""
    monkeypatch.setattr(size_limits, "SAFE_BYTES", 1000)


TOO_LARGE = r"needs .* of memory, but at most 1 kB \(half of this machine.s memory\) is allowed"


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the content was read before its size was checked")

    monkeypatch.setattr(zipfile.ZipFile, "open", fail)
    monkeypatch.setattr(zipfile.ZipFile, "read", fail)


def test_bomb_is_rejected_before_it_is_decompressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strict_ratio: None
) -> None:
    file = tmp_path / "bomb.npz"
    np.savez_compressed(file, x=np.zeros(1_000_000, dtype=np.uint8))  # 1200 bytes
    forbid_reading(monkeypatch)
    with pytest.raises(DataError, match=r"claims to contain 1 MB, more than 200 times as much"):
        read_npz(file, ["x"])


def test_archive_of_a_usual_ratio_is_read(tmp_path: Path, strict_ratio: None) -> None:
    file = tmp_path / "a.npz"
    np.savez_compressed(file, x=np.arange(100_000) % 256)
    assert read_npz(file, ["x"])["x"].shape == (100_000,)


def test_archive_that_does_not_fit_in_memory_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_memory: None
) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(500), y=np.zeros(500))
    forbid_reading(monkeypatch)
    with pytest.raises(DataError, match=f"{TOO_LARGE}.*folder of .npy files"):
        read_npz(tmp_path / "a.npz", ["x", "y"])


@pytest.mark.parametrize("shape", ["(1000000000000,)", "(3,)", "(-4,)"])
def test_header_must_agree_with_the_size_of_the_member(shape: str, tmp_path: Path) -> None:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", content + bytes(32))
    with pytest.raises(DataError, match=r"x is not an array .*header"):
        read_npz(tmp_path / "a.npz", ["x"])


def test_false_size_in_the_directory_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    np.savez_compressed(file, x=np.zeros(100_000))
    content = bytearray(file.read_bytes())
    entry = content.rindex(b"PK\x01\x02")  # the directory of the archive
    content[entry + 24 : entry + 28] = struct.pack("<I", 200)
    file.write_bytes(content)
    with pytest.raises(DataError):
        read_npz(file, ["x"])


def test_numbers_in_a_folder_that_do_not_fit_in_memory_are_rejected(
    tmp_path: Path, small_memory: None
) -> None:
    np.save(tmp_path / "x.npy", np.zeros((100, 2)))
    np.save(tmp_path / "y.npy", np.zeros(100, dtype=np.int64))
    with pytest.raises(DataError, match=TOO_LARGE):
        ArrayFolder(str(tmp_path)).load(None, 0)


def test_tables_that_do_not_fit_in_memory_are_rejected(tmp_path: Path, small_memory: None) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [7] * 1000}), file)  # stored in a few bytes
    with pytest.raises(DataError, match=f"{TOO_LARGE}. Use fewer rows"):
        read_table(file)
    (tmp_path / "a.csv").write_text("a\n" * 200)
    with pytest.raises(DataError, match=TOO_LARGE):
        read_table(tmp_path / "a.csv")
    with pytest.raises(DataError, match=TOO_LARGE):
        read_rows(tmp_path / "a.csv", ["a"])


ENCODINGS: list[dict[str, Any]] = [
    {},
    {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"},
]


@pytest.mark.parametrize("encoding", ENCODINGS, ids=["dictionary", "delta"])
@pytest.mark.parametrize(
    "values",
    [["x" * 100] * 50, [["x" * 100] * 50], [{"a": "x" * 100}] * 50, [b"x" * 100] * 50],
    ids=["text", "list", "struct", "bytes"],
)
def test_texts_that_are_stored_once_are_counted_in_every_row(
    values: list[Any],
    encoding: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": values}), file, **encoding)  # 5000 bytes of text
    monkeypatch.setattr(size_limits, "get_memory_bytes", lambda: 20_000)
    assert read_table(file).column("a").to_pylist() == values
    monkeypatch.setattr(size_limits, "get_memory_bytes", lambda: 8_000)
    monkeypatch.setattr(pq.ParquetFile, "read", lambda self: pytest.fail("it was read"))
    with pytest.raises(DataError, match=r"the text needs 5.* kB of memory, but at most 4 kB"):
        read_table(file)


@pytest.mark.parametrize("kind", ["string", "large_string"])
def test_categories_are_counted_in_every_row(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa

    texts = pa.array(["x" * 100, "y" * 100] * 25, kind).dictionary_encode()
    table = pa.table({"a": texts, "y": [0, 1] * 25})
    assert dataset_from_table(table, name="a", label="y").columns[0] == f"a={'x' * 100}"
    monkeypatch.setattr(size_limits, "get_memory_bytes", lambda: 8_000)
    with pytest.raises(DataError, match=r"column 'a' needs 5 kB of memory, but at most 4 kB"):
        read_column(table, "a", "the table")
    with pytest.raises(DataError, match=r"column 'a' needs 5 kB of memory, but at most 4 kB"):
        dataset_from_table(table, name="a", label="y")


def test_inputs_of_categories_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa

    table = pa.table({"a": [str(i % 50) + "x" for i in range(100)], "y": [0, 1] * 50})
    monkeypatch.setattr(size_limits, "get_memory_bytes", lambda: 8_000)
    with pytest.raises(DataError, match=r"encoding as 50 inputs needs 40 kB of memory"):
        dataset_from_table(table, name="a", label="y")


def test_parquet_file_that_is_much_larger_than_it_looks_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100,000 equal numbers take 800,000 bytes in memory and less than 2,000 in the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [7] * 100_000}), file)
    assert read_table(file).num_rows == 100_000
    monkeypatch.setattr(size_limits, "SAFE_BYTES", 700_000)
    with pytest.raises(DataError, match=r"claims to contain 800 kB, more than 200 times as much"):
        read_table(file)


def test_compressed_images_that_do_not_fit_in_memory_are_rejected(
    tmp_path: Path, small_memory: None
) -> None:
    content = bytes([0, 0, 8, 1]) + struct.pack(">I", 5000) + bytes(5000)
    (tmp_path / "a.gz").write_bytes(gzip.compress(content))
    with pytest.raises(DataError, match=TOO_LARGE):
        read_idx(tmp_path / "a.gz", ndim=1)
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(DataError, match=TOO_LARGE):
        read_idx(tmp_path / "a", ndim=1)


def test_compressed_images_of_an_unusual_ratio_are_rejected(
    tmp_path: Path, strict_ratio: None
) -> None:
    content = bytes([0, 0, 8, 1]) + struct.pack(">I", 1_000_000) + bytes(1_000_000)
    (tmp_path / "a.gz").write_bytes(gzip.compress(content))
    with pytest.raises(DataError, match=r"more than 200 times as much"):
        read_idx(tmp_path / "a.gz", ndim=1)


def test_large_traces_and_drift_tables_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.csv"
    file.write_text("client,join,leave\n" + "0,1,2\n" * 100)
    monkeypatch.setattr(size_limits, "MAX_TEXT_BYTES", 100)
    with pytest.raises(DataError, match="has 618 bytes, at most 100 bytes is allowed"):
        read_stays(file, 5)
    with pytest.raises(DataError, match="has 618 bytes, at most 100 bytes is allowed"):
        read_drift_table(file, 5, 2)


def test_drift_table_with_too_many_changes_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("client,from_round\n" + "".join(f"*,{rnd}\n" for rnd in range(30)))
    with pytest.raises(DataError, match=r"line 2: the table has more than 10,000,000 changes"):
        read_drift_table(file, 20_000_000, 2)


def test_nested_and_long_plans_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        plan_from_toml("a = " + "[" * 100_000, "plan.toml")
    (tmp_path / "plan.toml").write_text("# comment\n" * 200_000)
    with pytest.raises(ConfigError, match=r"2,000,000 bytes, but a plan has at most 1,000,000"):
        read_plan(tmp_path)
    with pytest.raises(ConfigError, match=r"2,000,000 bytes, but a plan has at most 1,000,000"):
        plan_from_toml("# comment\n" * 200_000, "the plan")


def test_plan_that_is_too_long_is_not_written() -> None:
    from thalweg.streams.drift_table import DriftTable

    lines = tuple((0, rnd, 0, 0.5) for rnd in range(50_000))
    plan = make_plan("fedavg", "digits-partial", drift=DriftTable(lines=lines))
    with pytest.raises(ConfigError, match=r"write long lists to files, such as drift\.path"):
        plan_to_toml(plan)
