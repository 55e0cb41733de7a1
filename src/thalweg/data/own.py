"""Data sets of users: from tables and arrays in memory or in files to a `Dataset`.

All inputs follow the same rules: which columns are features, how the task follows from the targets,
which rows are held out, and how values are scaled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import ConfigError, DataError, UnknownName, format_names, require
from thalweg.core.remedies import format_setting
from thalweg.core.types import Floats, Ints
from thalweg.data.base import Dataset, Targets, Task
from thalweg.data.columns import (
    is_numeric,
    read_codes,
    read_column,
    read_numbers,
    read_seconds,
    text_to_numbers,
)
from thalweg.data.features import find_unusable, split_features
from thalweg.data.mapped import is_mapped, spread_rows
from thalweg.data.preprocessing import InputColumn, Missing, encode_columns, find_columns
from thalweg.data.split import split_clients, split_rows
from thalweg.data.targets import check_task, convert_numbers, infer_task, strata
from thalweg.data.times import to_seconds

if TYPE_CHECKING:
    import pyarrow as pa

HoldOut = Literal["auto", "rows", "clients", "time"]
Array = npt.NDArray[Any]
MAX_SCALED = 1000  # images of a memory-mapped array from which its scale is computed


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules for user data that do not depend on the format."""

    depends_on_seed: ClassVar[bool] = False

    test_fraction: float = 0.2
    """Share of the rows that is held out for testing."""
    hold_out: HoldOut = "auto"
    """Rows for testing: a random part of every class (rows), all rows of some clients (clients), or
    the end of every client's history (time). auto: time if there are times, else rows."""
    standardise: bool = True
    """Scale features to mean 0 and standard deviation 1 in the training part.

    Images are always scaled.
    """
    task: Task | None = None
    """classification or regression; None: as the targets suggest."""
    missing: Missing = "reject"
    """Missing values in features: reject, fill, or drop the row."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, test_fraction="(0, 1)")
        check_task(self.task)


def make_rules(given: Mapping[str, Any]) -> Rules:
    """Return the rules with these fields; unknown names are rejected."""
    known = [field.name for field in fields(Rules)]
    for name in given:
        if name not in known:
            raise UnknownName("argument", name, known)
    return Rules(**given)


@lru_cache(maxsize=1)  # the plan and the run need the same data
def read_once(
    read: Callable[[Any, Any], Dataset],
    source: Rules,
    origin: Hashable,
    version: Hashable = None,
) -> Dataset:
    """Return ``read(source, origin)``; a second call with the same arguments does not read again.

    `origin` is a file, a folder or a seed, and `version` the time of the last change of the files.
    Only the last data set is kept.
    """
    return read(source, origin)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Validated rows before the split."""

    x: Array  # (n, ..., F) float64, or uint8 images (n, H, W, C)
    y: Targets  # class labels int64 (n,), or numbers float32 (n,) or (n, D)
    class_names: tuple[str, ...]  # empty: regression
    client: Ints | None
    client_names: tuple[str, ...]
    time: Floats | None
    x_test: Array | None = None  # images of a given test part; y contains their targets

    @property
    def task(self) -> Task:
        return "classification" if self.class_names else "regression"


def dataset_from_table(
    table: pa.Table,
    *,
    name: str,
    label: str | Sequence[str],
    client: str | None = None,
    time: str | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    test: pa.Table | None = None,
    rules: Rules | None = None,
    where: str = "the table",
) -> Dataset:
    """Return the data set of a table; `where` names the table in messages.

    `test` is the test part if it is given.
    """
    rules = rules or Rules()
    labels = (label,) if isinstance(label, str) else tuple(label)
    names = _choose_features(table, labels, client, time, features, drop, where)
    if table.num_rows == 0:
        raise DataError(f"{where}: expected rows, got none.")
    if test is not None:
        _choose_features(test, labels, client, time, names, (), f"{where}, test part")
    if rules.missing == "drop":
        table = _drop_missing(table, names, where)
        test = None if test is None else _drop_missing(test, names, f"{where}, test part")
        where = f"{where} without the rows that missing=drop drops"  # rows are counted without them
    num_train = None if test is None else table.num_rows
    if test is not None:
        table = _join(table, test, where)
    table = _convert_fractions(table, labels)
    y, class_names = _read_targets(table, labels, rules.task, where)
    owner, client_names = (None, ()) if client is None else read_codes(table, client, where)
    seconds = None if time is None else read_seconds(table, time, where)
    columns = find_columns(table, names, rules.missing, where)
    x = encode_columns(table, columns, where, allow_missing=rules.missing == "fill")
    rows = _Rows(x, y, class_names, owner, client_names, seconds)
    data = _split(
        rows, name, rules, where, columns=columns, target_names=labels, num_train=num_train
    )
    return replace(data, client_column=client or "", time_column=time or "")


def dataset_from_arrays(
    x: Any,
    y: Any,
    *,
    name: str,
    client: Any = None,
    time: Any = None,
    x_test: Any = None,
    y_test: Any = None,
    rules: Rules | None = None,
    where: str = "the arrays",
) -> Dataset:
    """Return the data set of arrays; `where` names them in messages."""
    rules = rules or Rules()
    if (x_test is None) != (y_test is None):
        raise DataError(f"{where}: expected x_test and y_test together, got one of them.")
    inputs, targets = _check_samples(x, "x", where), np.asarray(y)
    n = len(inputs)
    _check_targets(targets, "y", n, where)
    owner: Ints | None = None
    client_names: tuple[str, ...] = ()
    if client is not None:
        owner, client_names = _encode_labels(
            _check_column(client, "client", n, where), "client", where
        )
    seconds = None if time is None else to_seconds(_check_column(time, "time", n, where), where)
    held: Array | None = None
    if x_test is not None:
        held, held_targets = _check_samples(x_test, "x_test", where), np.asarray(y_test)
        _check_targets(held_targets, "y_test", len(held), where)
        _check_alike(inputs, held, "x", where)
        _check_alike(targets, held_targets, "y", where)
        targets = np.concatenate([targets, held_targets])
        if inputs.dtype != np.uint8:
            inputs, held = np.concatenate([inputs, held]), None
    task = infer_task(targets, rules.task, f"{where}: y")
    y_all, class_names = _convert_targets(targets, task, where)
    rows = _Rows(inputs, y_all, class_names, owner, client_names, seconds, held)
    return _split(rows, name, rules, where, num_train=n if x_test is not None else None)


def _split(
    rows: _Rows,
    name: str,
    rules: Rules,
    where: str,
    *,
    columns: Sequence[InputColumn] = (),
    target_names: tuple[str, ...] = (),
    num_train: int | None = None,
) -> Dataset:
    """Hold out rows, scale, and make the data set. `num_train`: the rest is the test part."""
    owner, client_names = rows.client, rows.client_names
    client, client_test = owner, None
    if num_train is not None:
        train, test = np.arange(num_train), np.arange(num_train, len(rows.y))
        if owner is not None and len(owner) == len(rows.y):  # known for both parts
            client, client_test = owner[train], owner[test]
    else:
        train, test = _choose_test_rows(rows, rules, where)
        if owner is not None and rules.hold_out == "clients":  # their clients never train
            kept, client = np.unique(owner[train], return_inverse=True)
            client_names = tuple(client_names[code] for code in kept) if client_names else ()
        elif owner is not None:
            client, client_test = owner[train], owner[test]
    x, scale = rows.x, None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    index: Ints | None = None
    index_test: Ints | None = None
    if x.dtype == np.uint8:
        mean, std = channel_scale(x, train)
        given = rows.x_test
        x_train, index = _take_images(x, train)
        x_test, index_test = _take_images(
            x if given is None else given, test if given is None else test - len(train)
        )
    else:
        columns = [_fit_fill(column, x, at, train) for column, at in _positions(columns)]
        inputs = [each for column in columns for each in column.inputs]
        inputs = inputs or [f"x[{':, ' * (x.ndim - 1)}{i}]" for i in range(x.shape[-1])]
        x_train, x_test, scale = split_features(
            x, train, test, standardise=rules.standardise, names=inputs, where=where
        )
    return Dataset(
        name=name,
        x=x_train,
        y=rows.y[train],
        x_test=x_test,
        y_test=rows.y[test],
        num_classes=len(rows.class_names),
        mean=mean,
        std=std,
        client=client,
        time=None if rows.time is None else rows.time[train],
        class_names=rows.class_names,
        client_names=client_names,
        client_test=client_test,
        columns=tuple(each for column in columns for each in column.inputs),
        scale=scale,
        encoding=tuple(columns),
        target_names=target_names,
        index=index,
        index_test=index_test,
        split=_describe_split(rows, rules, num_train, len(test)),
    )


def _take_images(x: Array, rows: Ints) -> tuple[Array, Ints | None]:
    """Copy images, or keep a memory-mapped array and return the rows in it."""
    return (x, rows) if is_mapped(x) else (x[rows], None)


def _describe_split(rows: _Rows, rules: Rules, num_train: int | None, num_test: int) -> str:
    """How the test rows were chosen, for the plan."""
    if num_train is not None:
        return "given"
    return {
        "rows": "a random part of every class" if rows.class_names else "random rows",
        "clients": "all rows of some clients",
        "time": "the last rows of every client" if rows.client is not None else "the last rows",
    }[_resolve_hold_out(rows, rules)]


def _resolve_hold_out(rows: _Rows, rules: Rules) -> str:
    if rules.hold_out != "auto":
        return rules.hold_out
    return "rows" if rows.time is None else "time"


def _choose_test_rows(rows: _Rows, rules: Rules, where: str) -> tuple[Ints, Ints]:
    """Return the training rows and the test rows, both ascending."""
    how = _resolve_hold_out(rows, rules)
    classes = strata(rows.y, rows.task)
    if how == "clients":
        if rows.client is None:
            raise ConfigError(
                f"{where}: hold_out=clients needs a client column, but there is none. Name it "
                f"({format_setting('data.client')}), or hold out rows."
            )
        return split_clients(rows.client, rules.test_fraction, where)
    if how == "time" and rows.time is None:
        raise ConfigError(
            f"{where}: hold_out=time needs a time column, but there is none. Name it "
            f"({format_setting('data.time')}), or hold out rows."
        )
    time = rows.time if how == "time" else None
    return split_rows(classes, rows.client, time, rules.test_fraction, where)


def _positions(columns: Sequence[InputColumn]) -> list[tuple[InputColumn, int]]:
    """Return each column with the position of its first input."""
    widths = [len(column.inputs) for column in columns]
    return list(zip(columns, np.cumsum([0, *widths]).tolist(), strict=False))


def _fit_fill(column: InputColumn, x: Floats, at: int, train: Ints) -> InputColumn:
    """Replace missing numbers (NaN) of a column by the mean of the training part, in place."""
    is_missing = np.isnan(x[:, at])
    if column.categories or not is_missing.any():
        return column
    known = x[train, at][~is_missing[train]]
    fill = float(known.mean()) if len(known) else 0.0
    x[is_missing, at] = fill
    return replace(column, fill=fill)


# Tables


def check_roles(
    labels: Sequence[str],
    client: str | None,
    time: str | None,
    features: Sequence[str] | None,
    drop: Sequence[str],
) -> None:
    """Reject columns with contradictory roles."""
    parts = [name for name in (*labels, client, time) if name is not None]
    require(
        len(labels) > 0 and len(set(parts)) == len(parts),
        f"label, client and time must be different columns, got {', '.join(parts) or 'none'}.",
    )
    if features is not None:
        require(len(features) > 0, "features must name at least one column; remove it to use all.")
        require(
            len(set(features)) == len(features),
            f"features names a column twice: {', '.join(features)}.",
        )
        used = [name for name in features if name in {*labels, *drop}]
        require(not used, f"features must not contain a label or dropped column, got {used}.")


def _choose_features(
    table: pa.Table,
    labels: tuple[str, ...],
    client: str | None,
    time: str | None,
    features: Sequence[str] | None,
    drop: Sequence[str],
    where: str,
) -> list[str]:
    """Check the names of columns, and return those of the features."""
    check_roles(labels, client, time, features, drop)
    known = table.column_names
    named = [("label", each) for each in labels] + [("client", client), ("time", time)]
    named += [("feature", each) for each in features or ()]
    named += [("dropped", each) for each in drop]
    for part, name in named:
        if part == "label" and name == "label" and name not in known:
            raise ConfigError(
                f"{where} has no column 'label', the default. Name the column to predict "
                f"({format_setting('data.label')}); its columns are {format_names(known)}."
            )
        if name is not None and name not in known:
            raise UnknownName(f"{part} column in {where}:", name, known)
    name, times = Counter(known).most_common(1)[0] if known else ("", 0)
    if times > 1:
        raise DataError(f"{where}: {times} columns have the name {name!r}. Rename all but one.")
    used = {*labels, client, time, *drop}
    chosen = list(features) if features is not None else [n for n in known if n not in used]
    if not chosen:
        raise ConfigError(
            f"{where} has no feature column besides label, client and time; its columns are "
            f"{format_names(known)}."
        )
    return chosen


def _join(table: pa.Table, test: pa.Table, where: str) -> pa.Table:
    """Return the rows of both parts in one table."""
    import pyarrow as pa

    try:
        return pa.concat_tables(
            [table, test.select(table.column_names)], promote_options="permissive"
        )
    except (pa.ArrowException, KeyError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{where}: expected the same columns of the same types in the training and the test "
            f"part ({reason}). Convert them first."
        ) from error


def _drop_missing(table: pa.Table, names: Sequence[str], where: str) -> pa.Table:
    """Return the rows in which no feature is missing."""
    import pyarrow as pa

    is_complete = np.ones(table.num_rows, dtype=bool)
    for name in names:
        column = table.column(name)
        is_complete &= ~column.is_null().to_numpy()
        if pa.types.is_floating(column.type):
            is_complete &= ~np.isnan(column.to_numpy())  # nulls are NaN too
    if not is_complete.any():
        raise DataError(
            f"{where}: every row has a missing value, so missing=drop leaves none. Fill them "
            f"({format_setting('data.missing', 'fill')}), or drop the columns "
            f"({format_setting('data.drop')})."
        )
    return table.filter(pa.array(is_complete))


def _convert_fractions(table: pa.Table, labels: tuple[str, ...]) -> pa.Table:
    """Convert label columns that are texts of numbers with fractions: they are not classes."""
    for name in labels:
        numbers = text_to_numbers(table.column(name))
        if numbers is None:
            continue
        values = numbers.drop_null().to_numpy()
        if (values != np.floor(values)).any():
            table = table.set_column(table.column_names.index(name), name, numbers)
    return table


def _read_targets(
    table: pa.Table, labels: tuple[str, ...], task: Task | None, where: str
) -> tuple[Targets, tuple[str, ...]]:
    """Return class labels and the names of the classes, or numbers and no names."""
    kinds = {name: table.schema.field(name).type for name in labels}
    place = f"{where}: column {', '.join(map(repr, labels))}"
    texts = [name for name, kind in kinds.items() if not is_numeric(kind)]
    if not texts:
        for name in labels:
            read_column(table, name, where)
        values = np.column_stack([read_numbers(table, name, where) for name in labels])
        values = values[:, 0] if len(labels) == 1 else values
        if infer_task(values, task, place) == "regression":
            return convert_numbers(values, place, first_row=1), ()
    elif task == "regression" or len(labels) > 1:
        read_numbers(table, texts[0], where)  # names the first text
    require(len(labels) == 1, f"{place}: a classification has one label column.")
    codes, class_names = read_codes(table, labels[0], where)
    if len(class_names) < 2:
        raise DataError(
            f"{place} is {class_names[0]!r} in every row; expected at least two classes."
        )
    return codes, class_names


# Arrays


def _check_samples(given: Any, name: str, where: str) -> Array:
    """Return x as uint8 images (n, H, W, C) or as float64 (n, ..., F)."""
    x: Array = np.asarray(given)
    if x.ndim in (3, 4) and x.dtype == np.uint8:
        x = x if x.ndim == 4 else x[..., None]
        if x.shape[1] in (1, 3) and min(x.shape[2:]) > 4:
            raise DataError(
                f"{where}: expected {name} to be images with channels last, (n, H, W, C), got the "
                f"shape {x.shape}, which has channels first. Use numpy.moveaxis({name}, 1, -1)."
            )
    elif x.ndim >= 2 and x.dtype.kind in "fiub":
        x = x.astype(np.float64)
        if (at := find_unusable(x)) is not None:
            raise DataError(
                f"{where}: {name}[{', '.join(map(str, at))}] is {x[at]}; "
                "expected a finite number that fits in 32 bits."
            )
    else:
        raise DataError(
            f"{where}: expected {name} to be uint8 images (n, H, W) or (n, H, W, C), or numbers "
            f"(n, F) or (n, ..., C), got {x.dtype} of shape {x.shape}."
        )
    if x.size == 0:
        raise DataError(f"{where}: {name} has no values, its shape is {x.shape}.")
    return x


def _check_alike(first: Array, second: Array, name: str, where: str) -> None:
    same_kind = first.dtype == second.dtype or name == "y"
    if first.shape[1:] != second.shape[1:] or not same_kind:
        raise DataError(
            f"{where}: expected {name}_test like {name}, {first.dtype} of shape (n, "
            f"{', '.join(map(str, first.shape[1:]))}), got {second.dtype} of {second.shape}."
        )


def _check_targets(y: Array, name: str, n: int, where: str) -> None:
    if not (y.ndim == 2 and len(y) == n and y.dtype.kind in "fiu"):  # several numbers per sample
        _check_column(y, name, n, where)


def _check_column(given: Any, name: str, n: int, where: str) -> Array:
    column: Array = np.asarray(given)
    if column.shape != (n,):
        raise DataError(
            f"{where}: expected {name} of shape ({n},), one entry for each row, got {column.shape}."
        )
    return column


def _convert_targets(y: Array, task: Task, where: str) -> tuple[Targets, tuple[str, ...]]:
    """Return class labels and the names of the classes, or numbers and no names."""
    if task == "regression":
        return convert_numbers(y, f"{where}: y"), ()
    if y.dtype.kind == "f" and (y == np.floor(y)).all():
        y = y.astype(np.int64)
    labels, class_names = _encode_labels(y, "y", where)
    if len(class_names) < 2:
        raise DataError(f"{where}: every y is {class_names[0]}; expected at least two classes.")
    return labels, class_names


def _encode_labels(column: Array, name: str, where: str) -> tuple[Ints, tuple[str, ...]]:
    """Return codes 0, 1, ... of the distinct values in sorted order, and the values as text."""
    if column.dtype.kind == "O" and all(isinstance(value, str) for value in column):
        column = column.astype(str)
    if column.dtype.kind not in "iubU":
        raise DataError(
            f"{where}: expected {name} to be whole numbers or text, got {column.dtype}."
        )
    values, codes = np.unique(column, return_inverse=True)
    return codes.astype(np.int64), tuple(str(value) for value in values)


def channel_scale(
    x: npt.NDArray[np.uint8], rows: Ints
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of every channel of x / 255; constant channels are not scaled.

    Of a memory-mapped array, at most 1000 of the rows at equal distances are read.
    """
    if is_mapped(x):
        rows = rows[spread_rows(len(rows), MAX_SCALED)]
    # 256 possible values: their counts give both moments exactly, without a float copy of x.
    counts = np.zeros((x.shape[3], 256), dtype=np.int64)
    for part in np.array_split(rows, -(-len(rows) // 100)):
        images = x[part]
        for channel, count in enumerate(counts):
            count += np.bincount(images[..., channel].ravel(), minlength=256)
    share = counts / counts.sum(axis=1, keepdims=True)  # (C, 256)
    level = np.arange(256) / 255
    mean = share @ level  # (C,)
    std = np.sqrt((share * (level - mean[:, None]) ** 2).sum(axis=1))
    std = np.where((counts > 0).sum(axis=1) > 1, std, 1.0)
    return tuple(mean.tolist()), tuple(std.tolist())
