"""Data sets from samples that arrive one by one: iterators, River streams, PyTorch datasets."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import DataError, require
from thalweg.data.base import Dataset
from thalweg.data.own import Rules, dataset_from_arrays, dataset_from_table

MIN_PROGRESS = 5_000  # fewer items are read without a progress bar


def dataset_from_samples(
    samples: Iterable[Any],
    *,
    name: str,
    limit: int | None = None,
    total: int | None = None,
    drop: tuple[str, ...] = (),
    rules: Rules | None = None,
    where: str = "the stream",
) -> Dataset:
    """Return the data set of items (x, y), (x, y, client) or (x, y, client, time).

    At most `limit` items are read. `total` is the number of items if it is known, for the progress.
    """
    require(limit is None or limit > 0, f"limit must be at least 1, got {limit}.")
    if limit is not None:
        total = limit if total is None else min(limit, total)
    items = show_progress(islice(samples, limit), total, f"reading {name}")
    columns: list[list[Any]] = []
    for number, item in enumerate(items):
        parts = _split_item(item, number, where)
        columns = columns or [[] for _ in parts]
        if len(parts) != len(columns):
            raise DataError(
                f"{where}: item {number} has {len(parts)} parts; expected {len(columns)}, as in "
                "item 0. All items need the same parts: (x, y), (x, y, client) or (x, y, client, "
                "time)."
            )
        for column, part in zip(columns, parts, strict=True):
            column.append(part)
    if not columns:
        raise DataError(f"{where}: expected items (x, y), got none.")
    x, y = columns[:2]
    client = columns[2] if len(columns) > 2 else None
    time = columns[3] if len(columns) > 3 else None
    if isinstance(x[0], Mapping):
        return _from_mappings(x, y, client, time, name, drop, rules, where)
    require(not drop, f"{where}: drop={drop} needs features with names, but x is a sequence.")
    return dataset_from_arrays(
        stack_samples(x, len(x), where),
        stack_targets(y, where),
        client=None if client is None else _to_column(client),
        time=None if time is None else _to_column(time),
        name=name,
        rules=rules,
        where=where,
    )


def iterate_torch(dataset: Any) -> Iterator[Any]:
    """Return the items of a map-style PyTorch dataset, which has a length and positions."""
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise DataError(
            f"expected a map-style dataset with __len__ and __getitem__, got "
            f"{type(dataset).__name__}. Use Dataset.from_stream(dataset) for an iterable one."
        )
    return (dataset[i] for i in range(len(dataset)))


def stack_samples(
    samples: Iterable[Any], total: int, where: str, place: str = "item"
) -> npt.NDArray[Any]:
    """Return samples of equal shape as one array (total, ...).

    PIL images become (H, W) or (H, W, C) of uint8.
    """
    stacked: npt.NDArray[Any] = np.empty(0)
    for number, sample in enumerate(samples):
        array = to_array(sample)
        if array.dtype.kind not in "fiub":
            raise DataError(
                f"{where}: x of {place} {number} is {_shorten(sample)}; expected an image or "
                "numbers. Encode texts as numbers, and drop items without a value."
            )
        if number == 0:
            stacked = np.empty((total, *array.shape), dtype=array.dtype)
        if array.shape != stacked.shape[1:]:
            raise DataError(
                f"{where}: x of {place} {number} has the shape {array.shape}; expected "
                f"{stacked.shape[1:]}, as in {place} 0. Resize the images and convert them to one "
                "mode, or pad or cut the sequences, to one shape first."
            )
        if array.dtype != stacked.dtype:
            both = np.result_type(stacked.dtype, array.dtype)
            stacked = stacked.astype(both) if both != stacked.dtype else stacked
        stacked[number] = array
    return stacked


def to_array(sample: Any) -> npt.NDArray[Any]:
    """Return one sample as an array; palettes of PIL images are resolved to RGB."""
    if getattr(sample, "mode", None) in ("P", "CMYK", "YCbCr", "LA", "PA"):
        sample = sample.convert("RGB")
    elif getattr(sample, "mode", None) == "1":
        sample = sample.convert("L")
    return np.asarray(sample)


def stack_targets(targets: list[Any], where: str) -> npt.NDArray[Any]:
    """Return targets as an array (n,) or (n, D)."""
    try:
        found = np.array([_to_plain(target) for target in targets])
    except ValueError as error:
        raise DataError(
            f"{where}: y has a different shape in different items; expected one label or number, "
            "or always the same number of numbers."
        ) from error
    return found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found


def _split_item(item: Any, number: int, where: str) -> tuple[Any, ...]:
    """Return the parts of an item, checked."""
    if not isinstance(item, tuple | list) or not 2 <= len(item) <= 4:
        got = type(item).__name__
        got += f" of length {len(item)}" if isinstance(item, tuple | list) else ""
        raise DataError(
            f"{where}: item {number} is a {got}; expected (x, y), (x, y, client) or (x, y, client, "
            "time). Wrap the iterator, for example ((row['x'], row['y']) for row in rows)."
        )
    return tuple(item)


def _from_mappings(
    x: list[Any],
    y: list[Any],
    client: list[Any] | None,
    time: list[Any] | None,
    name: str,
    drop: tuple[str, ...],
    rules: Rules | None,
    where: str,
) -> Dataset:
    """Items with named features, which may be texts, become a table."""
    import pyarrow as pa

    names = list(dict.fromkeys(str(key) for sample in x for key in sample))
    rows = [{str(key): _to_plain(value) for key, value in sample.items()} for sample in x]
    columns = {each: [row.get(each) for row in rows] for each in names}
    label, owner, moment = (_make_free(each, names) for each in ("y", "client", "time"))
    columns[label] = [_to_plain(target) for target in y]
    if client is not None:
        columns[owner] = [_to_plain(each) for each in client]
    if time is not None:
        columns[moment] = [_to_plain(each) for each in time]
    arrays: dict[str, Any] = {}
    for each, values in columns.items():
        try:
            arrays[each] = pa.array(values, from_pandas=True)
        except pa.ArrowException as error:
            reason = " ".join(str(error).split())
            raise DataError(
                f"{where}: {each!r} has values of different types ({reason}); expected only "
                "numbers or only texts. Convert them first."
            ) from error
    return dataset_from_table(
        pa.table(arrays),
        name=name,
        label=label,
        client=None if client is None else owner,
        time=None if time is None else moment,
        drop=drop,
        rules=rules,
        where=where,
    )


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _make_free(name: str, used: list[str]) -> str:
    while name in used:
        name = f"{name}_"
    return name


def _to_plain(value: Any) -> Any:
    """Return a tensor or a NumPy scalar as a plain number or list."""
    return value.tolist() if hasattr(value, "tolist") else value


def _to_column(values: list[Any]) -> npt.NDArray[Any]:
    plain = [_to_plain(value) for value in values]
    is_plain = all(isinstance(value, str | int | float) for value in plain)
    return np.array(plain) if is_plain else np.array(plain, dtype=object)


def show_progress(items: Iterator[Any], total: int | None, text: str) -> Iterable[Any]:
    """Show a progress bar on a terminal if there are many items."""
    if total is None or total < MIN_PROGRESS or not sys.stderr.isatty():
        return items
    from rich.console import Console
    from rich.progress import track

    return track(items, description=text, total=total, console=Console(stderr=True), transient=True)
