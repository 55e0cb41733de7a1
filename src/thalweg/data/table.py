"""User table: one ``.parquet`` or ``.csv`` file with a label column."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.errors import ConfigError, DataError, UnknownName, require
from thalweg.core.types import Ints
from thalweg.data.base import Dataset, Targets, Task
from thalweg.data.columns import is_numeric, read_codes, read_numbers, read_seconds, read_table
from thalweg.data.features import split_features
from thalweg.data.search import find_user_file
from thalweg.data.split import split_rows
from thalweg.data.targets import check_task, convert_numbers, infer_task, strata

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = (".parquet", ".csv")


@dataclass(frozen=True)
class Table:
    """Rows of a Parquet or CSV file with a label and, optionally, a client and a time.

    Labels and clients may be text or integers; their distinct values, in sorted order, are the
    classes and the clients. A label column with fractions is the target of a regression, and so
    are several label columns; they are not scaled. Times may be dates, timestamps (converted to
    seconds since 1970) or numbers. Rows keep the order of the file. With a time column the test
    part is the end of every client's history, otherwise the same random part of every class for
    every run (in a regression: of all rows).
    """

    path: str
    """Absolute, or relative to ``--data-dir``, the current folder or THALWEG_DATA."""
    label: str | tuple[str, ...] = "label"
    """The column of the targets; several columns (a,b) are the outputs of a regression."""
    client: str | None = None
    time: str | None = None
    features: tuple[str, ...] | None = None
    """Feature columns; None: all numeric columns that are not label, client or time."""
    test_fraction: float = 0.2
    standardise: bool = True
    """Scale features to mean 0 and standard deviation 1 in the training part."""
    task: Task | None = None
    """classification or regression; None: regression if a label has a fraction, or if there are
    several label columns."""

    def __post_init__(self) -> None:
        require(
            self.path.lower().endswith(SUFFIXES),
            f"expected a path ending in {' or '.join(SUFFIXES)}, got {self.path!r}.",
        )
        check_ranges(self, test_fraction="(0, 1)")
        check_task(self.task)
        if isinstance(self.label, str) and "," in self.label:
            names = tuple(name.strip() for name in self.label.split(","))
            object.__setattr__(self, "label", names)
        require(len(self.labels) > 0, "label must name at least one column, got none.")
        require(
            len(self.labels) == 1 or self.task != "classification",
            f"data.task=classification needs one label column, got {len(self.labels)}: "
            f"{', '.join(self.labels)}. Name one column, or use data.task=regression.",
        )
        parts = [name for name in (*self.labels, self.client, self.time) if name is not None]
        require(
            len(set(parts)) == len(parts),
            f"label, client and time must be different columns, got {', '.join(parts)}.",
        )
        if self.features is not None:
            require(
                len(self.features) > 0,
                "features must name at least one column; remove it to use all.",
            )
            require(
                len(set(self.features)) == len(self.features),
                f"features names a column twice: {', '.join(self.features)}.",
            )
            both = [name for name in self.labels if name in self.features]
            require(not both, f"features must not contain the label {', '.join(both)}.")

    @property
    def labels(self) -> tuple[str, ...]:
        """The label columns."""
        return (self.label,) if isinstance(self.label, str) else self.label

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read and check the whole file; the same for every seed."""
        file = find_user_file(self.path, data_dir)
        table = read_table(file)
        names = self._feature_names(table, file)
        if table.num_rows == 0:
            raise DataError(f"{file}: expected rows, got none.")
        task, y, class_names = self._read_targets(table, file)
        group: Ints | None = None
        group_names: tuple[str, ...] = ()
        if self.client is not None:
            group, group_names = read_codes(table, self.client, file)
        time = None if self.time is None else read_seconds(table, self.time, file)
        x = np.column_stack([read_numbers(table, name, file) for name in names])  # (n, F)
        train, test = split_rows(strata(y, task), group, time, self.test_fraction, str(file))
        parts = split_features(
            x, train, test, standardise=self.standardise, names=names, where=str(file)
        )
        return Dataset(
            name=file.stem,
            x=parts.train,
            y=y[train],
            x_test=parts.test,
            y_test=y[test],
            num_classes=len(class_names),
            group=None if group is None else group[train],
            time=None if time is None else time[train],
            class_names=class_names,
            group_names=group_names,
            group_test=None if group is None else group[test],
            columns=tuple(names),
            scale=parts.scale,
        )

    def _read_targets(self, table: pa.Table, file: Path) -> tuple[Task, Targets, tuple[str, ...]]:
        """Return the task, class labels or numbers, and the names of the classes."""
        first, task = self.labels[0], self.task
        where = f"{file}: column {first!r}"
        if len(self.labels) > 1:
            columns = [read_numbers(table, name, file) for name in self.labels]
            return "regression", np.column_stack(columns).astype(np.float32), ()
        if is_numeric(table.schema.field(first).type):
            values = read_numbers(table, first, file)
            task = infer_task(values, self.task, where)
            if task == "regression":
                return task, convert_numbers(values, where, first_row=1), ()
        elif task == "regression":
            raise DataError(
                f"{where} is {table.schema.field(first).type}; expected numbers "
                "(data.task=regression). Name another label column, or leave data.task out."
            )
        labels, class_names = read_codes(table, first, file)
        if len(class_names) < 2:
            raise DataError(
                f"{where} is {class_names[0]!r} in every row; expected at least two classes."
            )
        return "classification", labels, class_names

    def _feature_names(self, table: pa.Table, file: Path) -> list[str]:
        """Validate the named columns and find the feature columns."""
        import pyarrow as pa

        known = table.column_names
        named = [("label", name) for name in self.labels]
        named += [("client", self.client)] if self.client is not None else []
        named += [("time", self.time)] if self.time is not None else []
        for part, name in [*named, *(("feature", name) for name in self.features or ())]:
            if name not in known:
                raise UnknownName(f"{part} column in {file.name}:", name, known)
        name, times = Counter(known).most_common(1)[0]
        if times > 1:
            raise DataError(f"{file}: {times} columns have the name {name!r}.")
        if self.features is not None:
            return list(self.features)
        used = {name for _, name in named}
        rest = [name for name in known if name not in used]
        empty = [name for name in rest if pa.types.is_null(table.schema.field(name).type)]
        if empty:
            raise DataError(
                f"{file}: column {empty[0]!r} has no values at all. "
                "Drop it, or name the columns to use in features."
            )
        numeric = [name for name in rest if is_numeric(table.schema.field(name).type)]
        if not numeric:
            types = ", ".join(f"{name} ({table.schema.field(name).type})" for name in rest)
            raise ConfigError(
                f"{file} has no numeric feature column besides label, client and time; "
                f"got {types or 'no other column'}."
            )
        return numeric
