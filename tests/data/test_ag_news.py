from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thalweg.core.errors import ConfigError, DataError
from thalweg.data import AgNews

REAL = Path(os.environ.get("THALWEG_DATA", "nowhere"))

TRAIN = [
    (2, "Oil is up", "Oil, they say."),
    (0, "Oil talks", "Talks are up again."),
    (3, "A chip", "The chip is small."),
]
TEST = [(1, "Up again", "A goal, they say: up!")]


def write_parquet(folder: Path, train: Any = TRAIN, test: Any = TEST) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("train", train), ("test", test)):
        texts = [f"{title} {description}" for _, title, description in rows]
        labels = pa.array([label for label, _, _ in rows], pa.int8())
        table = pa.table({"text": pa.array(texts, pa.large_string()), "label": labels})
        pq.write_table(table, folder / f"{name}.parquet")
    return folder


def write_csv(folder: Path, header: str = "", train: Any = TRAIN) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("train", train), ("test", TEST)):
        lines = [f'"{label + 1}","{title}","{text}"\n' for label, title, text in rows]
        (folder / f"{name}.csv").write_text(header + "".join(lines))
    return folder


def test_ag_news_articles_become_word_codes(tmp_path: Path) -> None:
    write_parquet(tmp_path / "ag_news")
    data = AgNews(length=6).load(tmp_path, seed=0)
    # Words: . 3, oil 3, up 2, is 2, talks 2, chip 2; by count, then by the alphabet.
    codes = {".": 2, "oil": 3, "chip": 4, "is": 5, "talks": 6, "up": 7}
    assert data.x.tolist() == [
        [codes["oil"], codes["is"], codes["up"], codes["oil"], 1, 1],
        [codes["oil"], codes["talks"], codes["talks"], 1, codes["up"], 1],
        [1, codes["chip"], 1, codes["chip"], codes["is"], 1],
    ]
    assert data.x_test.tolist() == [[codes["up"], 1, 1, 1, 1, 1]]
    assert data.y.tolist() == [2, 0, 3]
    assert data.y_test.tolist() == [1]
    assert (data.num_codes, data.num_classes, data.x.dtype) == (8, 4, np.uint16)
    assert data.class_names == ("World", "Sports", "Business", "Sci/Tech")
    assert data.is_sequence
    assert data.input_shape == (6, 8)


def test_short_articles_are_padded(tmp_path: Path) -> None:
    write_parquet(tmp_path)
    data = AgNews(length=12).load(tmp_path, seed=0)
    assert (data.x[0] != 0).tolist() == [True] * 8 + [False] * 4  # oil is up oil , they say .


@pytest.mark.parametrize("header", ["", "Class Index,Title,Description\n"])
@pytest.mark.parametrize("layout", ["", "ag_news", "ag_news_csv"])
def test_parquet_and_csv_files_give_the_same_data(tmp_path: Path, layout: str, header: str) -> None:
    write_parquet(tmp_path / "one" / "ag_news")
    write_csv(tmp_path / "two" / layout, header)
    one, two = (
        AgNews().load(tmp_path / name, seed=seed) for seed, name in enumerate(("one", "two"))
    )
    for name in ("x", "y", "x_test", "y_test"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert one.num_codes == two.num_codes


def test_quoted_csv_values_may_contain_commas_quotes_and_line_breaks(tmp_path: Path) -> None:
    write_csv(tmp_path, train=[(0, 'He said ""no"", NA', "Not\na second"), (1, "", "N/A")])
    data = AgNews(min_count=1, length=16).load(tmp_path, seed=0)
    assert (data.x != 0).sum(1).tolist() == [10, 3]
    assert data.y.tolist() == [0, 1]


def test_smaller_vocabulary_keeps_the_codes_of_its_words(tmp_path: Path) -> None:
    write_parquet(tmp_path)
    large, small = (AgNews(vocabulary=size).load(tmp_path, seed=0) for size in (6, 2))
    assert (large.num_codes, small.num_codes) == (8, 4)
    np.testing.assert_array_equal(small.x, np.where(large.x >= 4, 1, large.x))


def test_words_only_in_the_test_part_are_unknown(tmp_path: Path) -> None:
    write_parquet(tmp_path, test=[(0, "goal goal goal goal", "goal")])
    data = AgNews(min_count=1).load(tmp_path, seed=0)
    assert set(data.x_test.ravel()) == {0, 1}


@pytest.mark.parametrize("label", [-1, 4])
def test_invalid_ag_news_labels_are_rejected_with_their_row(tmp_path: Path, label: int) -> None:
    write_parquet(tmp_path, train=[*TRAIN, (label, "a", "b")])
    with pytest.raises(DataError, match=rf"row 4, label is {label}; expected 0 to 3 \(World"):
        AgNews().load(tmp_path, seed=0)
    other = write_csv(tmp_path / "ag_news", train=[*TRAIN, (label, "a", "b")])
    with pytest.raises(DataError, match=rf"row 4, class is '{label + 1}'; expected 1 to 4 \(World"):
        AgNews().load(other, seed=0)


def test_files_with_other_columns_are_rejected(tmp_path: Path) -> None:
    write_parquet(tmp_path)
    pq.write_table(pa.table({"text": ["a"], "class": [1]}), tmp_path / "train.parquet")
    with pytest.raises(
        DataError, match="expected the columns text and label, but label is missing"
    ):
        AgNews().load(tmp_path, seed=0)
    pq.write_table(pa.table({"text": [1], "label": [1]}), tmp_path / "train.parquet")
    with pytest.raises(DataError, match="'text' is int64; expected text"):
        AgNews().load(tmp_path, seed=0)
    (tmp_path / "train.parquet").write_text("no such thing")
    with pytest.raises(DataError, match=r"train.parquet is not a readable parquet file"):
        AgNews().load(tmp_path, seed=0)


@pytest.mark.parametrize("content", ["text,label\n", "1,a\n", '"1","a","b"\n"2","a"\n', "\xff"])
def test_csv_files_with_another_shape_are_rejected(tmp_path: Path, content: str) -> None:
    write_csv(tmp_path)
    (tmp_path / "test.csv").write_bytes(content.encode("latin-1"))
    with pytest.raises(
        DataError, match=r"test.csv: expected a CSV file with the columns class, ti"
    ):
        AgNews().load(tmp_path, seed=0)


@pytest.mark.parametrize("header", ["", "Class Index,Title,Description\n"])
def test_files_without_articles_are_rejected(tmp_path: Path, header: str) -> None:
    write_csv(tmp_path)
    (tmp_path / "test.csv").write_text(header)
    with pytest.raises(DataError, match=r"test.csv: expected "):
        AgNews().load(tmp_path, seed=0)


def test_incomplete_ag_news_files_are_rejected(tmp_path: Path) -> None:
    (write_parquet(tmp_path / "ag_news") / "test.parquet").unlink()
    with pytest.raises(DataError, match=r"only 1 of the 2 parts of AG News; missing: test.parquet"):
        AgNews().load(tmp_path, seed=0)


def test_missing_ag_news_files_give_one_message_with_remedies(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)AG News is not on this machine.*--data-dir.*ag_news"):
        AgNews().locate(tmp_path)


@pytest.mark.parametrize(
    "changes", [{"length": 0}, {"vocabulary": 0}, {"vocabulary": 65_535}, {"min_count": 0}]
)
def test_invalid_ag_news_options_are_rejected(changes: Any) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        AgNews(**changes)


@pytest.mark.skipif(
    not (REAL / "ag_news" / "train.parquet").is_file(),
    reason="needs ag_news/train.parquet in THALWEG_DATA",
)
def test_real_ag_news_articles_have_few_unknown_words() -> None:
    data = AgNews().load(REAL, seed=0)
    assert len(data.y_test) == 7600
    assert np.bincount(data.y_test).tolist() == [1900] * 4
    assert data.x.shape[1:] == (64,)
    assert 20_000 < data.num_codes <= 30_002
    words = data.x_test[data.x_test != 0]
    assert (words == 1).mean() < 0.02
    assert (data.x[:, 8] != 0).all()  # the shortest article has nine words
