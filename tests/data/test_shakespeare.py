from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError, DataError
from thalweg.data import Shakespeare
from thalweg.data.shakespeare import CHARACTERS, NUM_CODES, cut_windows, encode

REAL = Path(os.environ.get("THALWEG_DATA", "nowhere"))


def write(folder: Path, rows: list[tuple[str, str, str]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    columns = {name: [row[i] for row in rows] for i, name in enumerate(("play", "role", "text"))}
    schema = pa.schema([(name, pa.string()) for name in columns])
    pq.write_table(pa.table(columns, schema), folder / "speeches.parquet")
    return folder


def decode(codes: Any) -> str:
    return "".join(CHARACTERS[code - 1] for code in codes)


SPEECHES = [
    ("hamlet", "hamlet/GHOST", "abcdefgh"),
    ("hamlet", "HAMLET", "What?"),
    ("hamlet", "hamlet/GHOST", "ijklmnopqrs"),
    ("lear", "FOOL", "0123456789"),
]


def test_speeches_of_a_role_are_joined_and_their_end_is_for_testing(tmp_path: Path) -> None:
    write(tmp_path / "shakespeare", SPEECHES)
    data = Shakespeare(length=3, stride=2, min_samples=4, test_fraction=0.25).load(tmp_path, seed=0)
    assert data.client_names == ("hamlet/GHOST",)
    # 20 characters, 9 windows; a quarter of them are 2, which reach over the last 6.
    assert [decode(x) for x in data.x_test] == ["nop", "pqr"]
    assert decode(data.y_test) == "qs"
    assert [decode(x) for x in data.x] == ["abc", "cde", "efg", "gh\n", "\nij", "jkl"]
    assert decode(data.y) == "dfhikm"
    assert data.time is not None
    assert data.time.tolist() == [3, 5, 7, 9, 11, 13]


def test_every_role_is_a_client_with_its_own_test_part(tmp_path: Path) -> None:
    write(tmp_path, SPEECHES)
    data = Shakespeare(length=2, stride=1, min_samples=2).load(tmp_path, seed=3)
    assert data.client_names == ("hamlet/GHOST", "lear/FOOL")  # "What?" is too short for both parts
    # Of 18 windows 4 are for testing, and 20 - 3 - 3 characters remain: 12 windows. Of 8, 2.
    assert np.bincount(data.client).tolist() == [12, 4]
    assert np.bincount(data.client_test).tolist() == [4, 2]
    assert data.x.dtype == np.uint8
    assert data.is_sequence
    assert not data.is_image
    assert data.input_shape == (2, 97)
    assert data.num_classes == data.num_codes == NUM_CODES == 97
    assert data.class_names[int(data.y[0])] == "c"


def test_characters_outside_ascii_share_one_code() -> None:
    assert encode("é\t\x7f😀").tolist() == [0, 0, 0, 0]
    assert decode(encode(CHARACTERS)) == CHARACTERS
    assert encode(CHARACTERS).max() == NUM_CODES - 1
    assert encode("").tolist() == []


@given(
    size=st.integers(0, 60),
    length=st.integers(1, 9),
    stride=st.integers(1, 12),
    fraction=st.floats(0.01, 0.99),
)
def test_no_character_is_in_both_training_and_test_part(
    size: int, length: int, stride: int, fraction: float
) -> None:
    text = np.arange(size, dtype=np.uint8)  # every character once
    source = Shakespeare(length=length, stride=stride, test_fraction=fraction)
    train, test = source.split(text)
    seen, hidden = (set(part.x.ravel()) | set(part.y) for part in (train, test))
    assert not seen & hidden
    assert max(seen, default=-1) < min(hidden, default=size)
    num_windows = len(cut_windows(text, length, stride).y)
    assert len(test.y) == (num_windows and max(1, int(num_windows * fraction + 0.5)))
    for part in (train, test):
        assert (part.x[:, -1] + 1 == part.y).all()
    assert train.time.tolist() == train.y.tolist()


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([("a", "b", "short")], "no role has 10 samples of 80 characters"),
        ([], "no role has 10 samples"),
    ],
)
def test_too_little_text_is_rejected(tmp_path: Path, rows: Any, words: str) -> None:
    write(tmp_path, rows)
    with pytest.raises(DataError, match=words):
        Shakespeare().load(tmp_path, seed=0)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"play": ["a"], "text": ["b"]}, "expected the columns play, role, text, but role is"),
        ({"play": ["a"], "role": [1], "text": ["b"]}, "column 'role' is int64; expected text"),
        ({"play": ["a"], "role": ["b"], "text": [None]}, "expected"),
    ],
)
def test_shakespeare_table_with_other_columns_is_rejected(
    tmp_path: Path, columns: Any, words: str
) -> None:
    pq.write_table(pa.table(columns), tmp_path / "speeches.parquet")
    with pytest.raises(DataError, match=words):
        Shakespeare().load(tmp_path, seed=0)


def test_damaged_shakespeare_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "speeches.parquet").write_bytes(b"to be or not to be")
    with pytest.raises(DataError, match="not a readable parquet file"):
        Shakespeare().load(tmp_path, seed=0)


def test_missing_shakespeare_file_gives_one_message_with_remedies(tmp_path: Path) -> None:
    for ask in (lambda: Shakespeare().load(tmp_path, 0), lambda: Shakespeare().locate(tmp_path)):
        with pytest.raises(DataError, match=r"(?s)Shakespeare is not on.*--data-dir.*Looked in"):
            ask()


@pytest.mark.parametrize(
    "changes", [{"length": 0}, {"stride": 0}, {"min_samples": 1}, {"test_fraction": 0.0}]
)
def test_invalid_shakespeare_options_are_rejected(changes: Any) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        Shakespeare(**changes)


@pytest.mark.skipif(
    not (REAL / "shakespeare" / "speeches.parquet").is_file(),
    reason="needs shakespeare/speeches.parquet in THALWEG_DATA",
)
def test_real_plays_have_hundreds_of_clients() -> None:
    data = Shakespeare().load(REAL, seed=0)
    assert len(data.client_names) > 700
    assert data.x.nbytes < 50e6
    assert "hamlet/HAMLET" in data.client_names
    assert (data.x == 0).mean() < 1e-3
    assert np.bincount(data.client_test).min() >= 1
