"""User table: one ``.parquet`` or ``.csv`` file with a label column."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from thalweg.core.errors import require
from thalweg.core.registry import local_path
from thalweg.data.base import Dataset
from thalweg.data.columns import read_table
from thalweg.data.own import Rules, check_roles, dataset_from_table, read_once
from thalweg.data.search import find_user_file

SUFFIXES = (".parquet", ".csv")


@dataclass(frozen=True)
class Table(Rules):
    """Rows of a Parquet or CSV file with a label and, optionally, a client and a time.

    Labels and clients may be text or integers; their distinct values, in sorted order, are the
    classes and the clients. A label column with fractions is the target of a regression, as are
    several label columns; targets are not scaled. Times may be dates, timestamps, ISO 8601 texts
    (converted to seconds since 1970; without a time zone they are UTC) or numbers. Rows keep the
    order of the file. Texts that are all numbers become numbers; other texts with at most 50
    different values become one input per value. Other columns that are neither numbers nor text
    must be dropped.
    """

    path: str = local_path()
    """Absolute, or relative to ``--data-dir``, the current folder or THALWEG_DATA."""
    label: str | tuple[str, ...] = "label"
    """The column to predict; several columns (a,b) are the outputs of a regression."""
    client: str | None = None
    """The column with the client of each row; None: rows in turn (`thalweg show replay`)."""
    time: str | None = None
    """The column with the time of each row; None: the rows have no order in time."""
    features: tuple[str, ...] | None = None
    """Feature columns; None: all columns that are not label, client, time or dropped."""
    drop: tuple[str, ...] = ()
    """Columns that are not used."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.path.lower().endswith(SUFFIXES),
            f"expected a path ending in {' or '.join(SUFFIXES)}, got {self.path!r}.",
        )
        if isinstance(self.label, str) and "," in self.label:
            names = tuple(name.strip() for name in self.label.split(","))
            object.__setattr__(self, "label", names)
        require(
            len(self.labels) == 1 or self.task != "classification",
            f"data.task=classification needs one label column, got {len(self.labels)}: "
            f"{', '.join(self.labels)}. Name one column, or use data.task=regression.",
        )
        check_roles(self.labels, self.client, self.time, self.features, self.drop)

    @property
    def labels(self) -> tuple[str, ...]:
        """The label columns."""
        return (self.label,) if isinstance(self.label, str) else self.label

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read and check the whole file; the same for every seed."""
        file = find_user_file(self.path, data_dir)
        return read_once(_read, self, file, file.stat().st_mtime_ns)


def _read(source: Table, file: Path) -> Dataset:
    return dataset_from_table(
        read_table(file),
        name=file.stem,
        label=source.labels,
        client=source.client,
        time=source.time,
        features=source.features,
        drop=source.drop,
        rules=source,
        where=str(file),
    )
