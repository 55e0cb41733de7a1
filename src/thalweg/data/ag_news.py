"""AG News: classify news articles into four topics."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.errors import DataError
from thalweg.core.types import Ints
from thalweg.data import search, words
from thalweg.data.base import Dataset
from thalweg.data.columns import read_numbers, read_rows, read_table, read_texts

TITLE = "AG News"
FOLDERS = ("ag_news", "ag-news", "agnews", "AG_NEWS", "ag_news_csv")
PARQUET, CSV = ("train.parquet", "test.parquet"), ("train.csv", "test.csv")
CLASS_NAMES = ("World", "Sports", "Business", "Sci/Tech")


@dataclass(frozen=True)
class AgNews:
    """Title and beginning of news articles in four topics (Zhang, Zhao and LeCun, 2015).

    A sample is the first `length` tokens of an article, as codes: 0 is padding, 1 any word without
    a code, then the words of the training part by decreasing frequency. Words are in lower case;
    every character that is neither letter nor digit is a token. Samples are uint16, two bytes per
    token.

    Needs ``train.parquet`` and ``test.parquet`` (columns text and label, 0 to 3), or the published
    ``train.csv`` and ``test.csv`` (class 1 to 4, title, description; with or without a header). The
    published parts have 120,000 and 7,600 articles; smaller files are accepted.
    """

    length: int = 64
    """Number of tokens per article."""
    vocabulary: int = 30_000
    """Number of words with a code of their own.

    Smaller vocabularies train faster and keep the same codes.
    """
    min_count: int = 2
    """Words that are less frequent in the training part have no code."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            length="[1, UNITS]",
            vocabulary=f"[1, {words.MAX_WORDS}]",
            min_count="[1, inf)",
        )

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read both files; the same for every seed."""
        train, test = (_read(file) for file in _find(data_dir))
        codes = words.build_vocabulary(train.texts, self.vocabulary, self.min_count)
        return Dataset(
            name="ag-news",
            x=words.encode(train.texts, codes, self.length),
            y=train.labels,
            x_test=words.encode(test.texts, codes, self.length),
            y_test=test.labels,
            num_classes=len(CLASS_NAMES),
            class_names=CLASS_NAMES,
            num_codes=words.UNKNOWN + 1 + len(codes),
        )

    def locate(self, data_dir: Path | None) -> object:
        """Locate the files without reading them."""
        return _find(data_dir)


class Articles(NamedTuple):
    """One part of the data."""

    texts: list[list[str]]  # words
    labels: Ints  # (n,) 0 .. 3


def _find(data_dir: Path | None) -> tuple[Path, Path]:
    """Files of the training and of the test part."""
    candidates = search.list_folders(FOLDERS, data_dir)
    for candidate in candidates:
        for train, test in (PARQUET, CSV):
            if folder := search.find_folder((train, test), TITLE, [candidate]):
                return folder / train, folder / test
    ways = [
        f"get the published archive ag_news_csv, with {' and '.join(CSV)}, and unpack it",
        f"write {' and '.join(PARQUET)} from any copy: columns text, and label from 0 "
        f"({', '.join(CLASS_NAMES)})",
        search.manual_instructions("both files"),
    ]
    raise search.not_found_error(TITLE, "is not downloaded automatically", ways, candidates)


def _read(file: Path) -> Articles:
    articles, labels = _parquet(file) if file.suffix == ".parquet" else _csv(file)
    if not articles:
        raise DataError(f"{file}: expected articles, got none.")
    return Articles([words.split(text) for text in articles], labels)


def _parquet(file: Path) -> tuple[list[str], Ints]:
    table = read_table(file)
    if wrong := [name for name in ("text", "label") if table.column_names.count(name) != 1]:
        raise DataError(
            f"{file}: expected the columns text and label, but {' and '.join(wrong)} is missing or "
            "there twice."
        )
    values = read_numbers(table, "label", file)
    outside = ~np.isin(values, range(len(CLASS_NAMES)))
    if outside.any():
        row = int(outside.argmax())
        raise DataError(
            f"{file}: row {row + 1}, label is {values[row]:g}; expected 0 to 3 "
            f"({', '.join(CLASS_NAMES)})."
        )
    return read_texts(table, "text", file), values.astype(np.int64)


def _csv(file: Path) -> tuple[list[str], Ints]:
    """Title and description are joined by a space, as in other copies."""
    rows = read_rows(file, ("class", "title", "description"))
    known = {str(number + 1): number for number in range(len(CLASS_NAMES))}
    has_header = bool(rows) and not rows[0][0].strip().isdecimal()
    articles, labels = [], []
    for number, (kind, title, description) in enumerate(rows, start=1):
        if number == 1 and has_header:
            continue
        if kind.strip() not in known:
            raise DataError(
                f"{file}: row {number}, class is {kind!r}; expected 1 to 4 "
                f"({', '.join(CLASS_NAMES)})."
            )
        articles.append(f"{title} {description}")
        labels.append(known[kind.strip()])
    return articles, np.array(labels, dtype=np.int64)
