"""User arrays in one ``.npz`` file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from thalweg.core.config import check_ranges
from thalweg.core.errors import DataError, require
from thalweg.core.types import Floats, Ints
from thalweg.data.base import Dataset, Targets, Task
from thalweg.data.features import Scale, find_unusable, split_features
from thalweg.data.npz import Array, read_npz
from thalweg.data.search import find_user_file
from thalweg.data.split import split_rows
from thalweg.data.targets import check_task, convert_numbers, infer_task, strata

REQUIRED = ("x", "y")
OPTIONAL = ("group", "time", "x_test", "y_test")


@dataclass(frozen=True)
class Arrays:
    """Samples from a NumPy ``.npz`` file, read without pickles.

    x, x_test
        images, uint8, (n, H, W) or (n, H, W, C); features, any numbers, (n, F); or numbers of any
        other shape (n, ..., C), such as windows of T steps (n, T, C), for a module of your own
    y, y_test
        classification: labels, integers or text, (n,); the distinct values in sorted order are the
        classes. Regression: numbers, (n,) or (n, D); they are not scaled
    group
        the client of each row of x, integers or text, (n,)
    time
        time of each row of x, numbers or dates, (n,)

    Only x and y are required. Without x_test and y_test a part of x is held out: with a time, the
    end of every client's history; otherwise the same random part of every class for every run (in
    a regression: of all rows). With a group, the client of each test row is known as well.
    """

    path: str
    """Absolute, or relative to ``--data-dir``, the current folder or THALWEG_DATA."""
    test_fraction: float = 0.2
    """Share of held-out rows if the file has no x_test."""
    standardise: bool = True
    """Scale features to mean 0 and standard deviation 1 in the training part.

    Images are always scaled.
    """
    task: Task | None = None
    """classification or regression; None: regression if a y has a fraction or several columns."""

    def __post_init__(self) -> None:
        require(
            self.path.lower().endswith(".npz"),
            f"expected a path ending in .npz, got {self.path!r}.",
        )
        check_ranges(self, test_fraction="(0, 1)")
        check_task(self.task)

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read and check the whole file; the same for every seed."""
        file = find_user_file(self.path, data_dir)
        arrays = read_npz(file, REQUIRED, OPTIONAL)
        if ("x_test" in arrays) != ("y_test" in arrays):
            raise DataError(f"{file}: expected x_test and y_test together, got one of them.")
        has_test = "x_test" in arrays
        x, y = _samples(arrays, "", file)
        n = len(x)
        group: Ints | None = None
        group_names: tuple[str, ...] = ()
        if "group" in arrays:
            group, group_names = _codes(_column(arrays, "group", n, file), "group", file)
        time = _seconds(_column(arrays, "time", n, file), file) if "time" in arrays else None
        if has_test:
            x_test, y_test = _samples(arrays, "_test", file)
            if x_test.shape[1:] != x.shape[1:] or x_test.dtype != x.dtype:
                raise DataError(
                    f"{file}: expected x_test like x, {x.dtype} of shape (n, "
                    f"{', '.join(map(str, x.shape[1:]))}), got {x_test.dtype} of {x_test.shape}."
                )
            if y_test.shape[1:] != y.shape[1:]:
                raise DataError(
                    f"{file}: expected y_test like y, of shape (n, "
                    f"{', '.join(map(str, y.shape[1:]))}), got {y_test.shape}."
                )
            x, y = np.concatenate([x, x_test]), np.concatenate([y, y_test])
        task = infer_task(y, self.task, f"{file}: y")
        y, class_names = _read_targets(y, task, file)
        if has_test:
            train, test = np.arange(n), np.arange(n, len(x))
        else:
            train, test = split_rows(strata(y, task), group, time, self.test_fraction, str(file))
        mean: tuple[float, ...] = ()
        std: tuple[float, ...] = ()
        scale: Scale | None = None
        if x.dtype == np.uint8 and x.ndim == 4:
            x_train, x_rest = x[train], x[test]
            mean, std = _channel_scale(x_train)
        else:
            x_train, x_rest, scale = split_features(
                x,
                train,
                test,
                standardise=self.standardise,
                names=[f"x[{':, ' * (x.ndim - 1)}{i}]" for i in range(x.shape[-1])],
                where=str(file),
            )
        return Dataset(
            name=file.stem,
            x=x_train,
            y=y[train],
            x_test=x_rest,
            y_test=y[test],
            num_classes=len(class_names),
            mean=mean,
            std=std,
            group=None if group is None else group[train],
            time=None if time is None else time[train],
            class_names=class_names,
            group_names=group_names,
            group_test=None if group is None or has_test else group[test],
            scale=scale,
        )


def _samples(arrays: dict[str, Array], suffix: str, file: Path) -> tuple[Array, Array]:
    """x as uint8 images (n, H, W, C) or float64 features (n, ..., F), and y (n,)."""
    name = f"x{suffix}"
    x = arrays[name]
    if x.ndim in (3, 4) and x.dtype == np.uint8:
        x = x if x.ndim == 4 else x[..., None]
    elif x.ndim >= 2 and x.dtype.kind in "fiub":
        x = x.astype(np.float64)
        if (at := find_unusable(x)) is not None:
            raise DataError(
                f"{file}: {name}[{', '.join(map(str, at))}] is {x[at]}; "
                "expected a finite number that fits in 32 bits."
            )
    else:
        raise DataError(
            f"{file}: expected {name} to be uint8 images (n, H, W) or (n, H, W, C), or numbers "
            f"(n, F) or (n, ..., C), got {x.dtype} of shape {x.shape}."
        )
    if x.size == 0:
        raise DataError(f"{file}: {name} has no values, its shape is {x.shape}.")
    name = f"y{suffix}"
    y = arrays[name]
    if y.ndim == 2 and len(y) == len(x) and y.dtype.kind in "fiu":  # several numbers per sample
        return x, y
    return x, _column(arrays, name, len(x), file)


def _read_targets(y: Array, task: Task, file: Path) -> tuple[Targets, tuple[str, ...]]:
    """Return class labels and the names of the classes, or numbers and no names."""
    if task == "regression":
        return convert_numbers(y, f"{file}: y"), ()
    if y.dtype.kind == "f" and (y == np.floor(y)).all():
        y = y.astype(np.int64)
    labels, class_names = _codes(y, "y", file)
    if len(class_names) < 2:
        raise DataError(f"{file}: every y is {class_names[0]}; expected at least two classes.")
    return labels, class_names


def _column(arrays: dict[str, Array], name: str, n: int, file: Path) -> Array:
    column = arrays[name]
    if column.shape != (n,):
        raise DataError(
            f"{file}: expected {name} of shape ({n},), one entry for each row, got {column.shape}."
        )
    return column


def _codes(column: Array, name: str, file: Path) -> tuple[Ints, tuple[str, ...]]:
    """Codes 0, 1, ... of the distinct values in sorted order, and the values as text."""
    if column.dtype.kind not in "iubU":
        raise DataError(f"{file}: expected {name} to be whole numbers or text, got {column.dtype}.")
    values, codes = np.unique(column, return_inverse=True)
    return codes.astype(np.int64), tuple(str(value) for value in values)


def _seconds(column: Array, file: Path) -> Floats:
    if column.dtype.kind == "M":
        time = column.astype("datetime64[ns]").astype(np.int64) / 1e9
        time[np.isnat(column)] = np.nan
    elif column.dtype.kind in "fiu":
        time = column.astype(np.float64)
    else:
        raise DataError(f"{file}: expected time to be numbers or dates, got {column.dtype}.")
    if not np.isfinite(time).all():
        row = int(np.argmin(np.isfinite(time)))
        raise DataError(f"{file}: time[{row}] is {column[row]}; expected a finite moment.")
    return time


def _channel_scale(x: npt.NDArray[np.uint8]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of every channel of x / 255; constant channels are not scaled."""
    # 256 possible values: their counts give both moments exactly, without a float copy of x.
    counts = np.stack([np.bincount(x[..., c].ravel(), minlength=256) for c in range(x.shape[3])])
    share = counts / counts.sum(axis=1, keepdims=True)  # (C, 256)
    level = np.arange(256) / 255
    mean = share @ level  # (C,)
    std = np.sqrt((share * (level - mean[:, None]) ** 2).sum(axis=1))
    std = np.where((counts > 0).sum(axis=1) > 1, std, 1.0)
    return tuple(mean.tolist()), tuple(std.tolist())
