"""Data sets of the Hugging Face Hub and `datasets` objects (``thalweg[huggingface]``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError, DataError, UnknownName, require
from thalweg.core.registry import local_path
from thalweg.core.remedies import format_setting
from thalweg.data.base import Dataset
from thalweg.data.columns import read_column, read_seconds
from thalweg.data.own import (
    Rules,
    check_roles,
    dataset_from_arrays,
    dataset_from_table,
    read_once,
)
from thalweg.data.samples import show_progress, stack_samples
from thalweg.data.search import is_offline, list_candidates

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class HuggingFace(Rules):
    """A data set of the Hugging Face Hub, of its cache, or of a folder from ``save_to_disk``.

    It is downloaded once by the package datasets, unless ``HF_HUB_OFFLINE=1`` or
    ``THALWEG_OFFLINE=1``; then only its cache is used. If there is an image column, the images are
    the samples, and columns other than label, client and time are not used. Otherwise the columns
    are used as those of a table, or one column of arrays is used. The names of a ClassLabel are the
    names of the classes.
    """

    name: str = local_path()
    """Such as mnist or user/name, or a folder."""
    label: str | tuple[str, ...] = "label"
    """The column to predict; several columns (a,b) are the outputs of a regression."""
    config: str | None = None
    """Configuration of a data set that has several."""
    split: str = "train"
    """Such as train or train[:10%]."""
    test_split: str | None = None
    """Such as test or validation; None: rows of `split` are held out."""
    client: str | None = None
    time: str | None = None
    image: str | None = None
    """The image column; None: the only one, if there is one."""
    features: tuple[str, ...] | None = None
    """Feature columns; None: all columns that are not label, client, time or dropped."""
    drop: tuple[str, ...] = ()
    """Columns that are not used."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.label, str) and "," in self.label:
            names = tuple(name.strip() for name in self.label.split(","))
            object.__setattr__(self, "label", names)
        labels = (self.label,) if isinstance(self.label, str) else self.label
        check_roles(labels, self.client, self.time, self.features, self.drop)
        require(
            self.image is None or self.features is None,
            f"image={self.image} and features={self.features} exclude each other: images are used "
            "alone. Remove one of them.",
        )

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read the splits; the same for every seed."""
        return read_once(_read, self, data_dir)


def _read(source: HuggingFace, data_dir: Path | None) -> Dataset:
    found = _find(source.name, source.config, source.split, data_dir)
    held = None
    if source.test_split is not None:
        held = _find(source.name, source.config, source.test_split, data_dir)
    return convert(found, held, source)


def load_object(given: Any, source: HuggingFace) -> Dataset:
    """Return the data set of a `datasets.Dataset` or of the splits of a `datasets.DatasetDict`."""
    _import_datasets()
    found = _choose_split(given, source.split, source.name)
    if source.test_split is None:
        return convert(found, None, source)
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"test_split={source.test_split!r} needs a DatasetDict with several splits, got one "
            f"{type(given).__name__}. Remove test_split, or pass the DatasetDict."
        )
    return convert(found, _choose_split(given, source.test_split, source.name), source)


def _import_datasets() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise ConfigError(
            "data sets of Hugging Face need the package datasets: pip install "
            "'thalweg[huggingface]'."
        ) from error
    if is_offline():
        datasets.config.HF_HUB_OFFLINE = True
    return datasets


def _find(name: str, config: str | None, split: str, data_dir: Path | None) -> Any:
    """Return a split of a saved folder, of the cache or of the Hub."""
    datasets = _import_datasets()
    folders = [
        folder
        for folder in list_candidates(name, data_dir)
        if (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file()
    ]
    try:
        if folders:
            return _choose_split(datasets.load_from_disk(str(folders[0])), split, name)
        return datasets.load_dataset(name, config, split=split)
    except (DataError, ConfigError):
        raise
    except Exception as error:  # the package raises many types, of several other packages
        reason = " ".join(str(error).split()) or type(error).__name__
        options = f"{name!r}" if config is None else f"{name!r}, {config!r}"
        is_unreachable = isinstance(error, OSError) or datasets.config.HF_HUB_OFFLINE
        remedy = (
            f"Searched: the folder {name}, the cache {datasets.config.HF_DATASETS_CACHE}, and the "
            f"Hub{' (disabled: offline)' if datasets.config.HF_HUB_OFFLINE else ''}. Fill the "
            "cache on a machine with a connection, and copy it to that folder (or set "
            f'HF_HOME): python -c "import datasets; datasets.load_dataset({options})"'
            if is_unreachable
            else f"Check {format_setting('data.config')} and {format_setting('data.split')}."
        )
        raise DataError(f"hf:{name}, split {split!r}, cannot be loaded ({reason}). {remedy}") from (
            error
        )


def _choose_split(given: Any, split: str, name: str) -> Any:
    """Return one split of several, or the only one."""
    if isinstance(given, Mapping):
        if split not in given:
            raise UnknownName(f"split of {name}:", split, map(str, given))
        given = given[split]
    if not (hasattr(given, "features") and hasattr(given, "select_columns")):
        raise DataError(
            f"expected the name of a data set, a datasets.Dataset or a DatasetDict, got "
            f"{type(given).__name__}."
        )
    if not hasattr(given, "__len__"):
        raise DataError(
            f"{name} is an {type(given).__name__}, which has no length. Load it without "
            "streaming=True, or use Dataset.from_stream(((row['x'], row['y']) for row in data), "
            "limit=...)."
        )
    return given


def convert(found: Any, held: Any, source: HuggingFace) -> Dataset:
    """Return the data set of a split, and of a test split if there is one."""
    where = f"hf:{source.name}"
    labels = (source.label,) if isinstance(source.label, str) else source.label
    for given in (found, held) if held is not None else (found,):
        _check_columns(given, labels, source, where)
    names = _read_class_names(found, labels)
    for given, split in ((found, source.split), (held, source.test_split)):
        if given is not None and names:
            _check_labelled(given, labels[0], split, where)
    column = _find_array_column(found, labels, source, where)
    if column is None:
        data = dataset_from_table(
            _read_table(found, labels),
            name=source.name.replace("/", "-"),
            label=labels,
            client=source.client,
            time=source.time,
            features=source.features,
            drop=source.drop,
            test=None if held is None else _read_table(held, labels),
            rules=source,
            where=where,
        )
    else:
        data = _convert_arrays(found, held, column, labels, source, where)
    if not names or data.task == "regression":
        return data
    return replace(data, class_names=tuple(names[int(code)] for code in data.class_names))


def _check_columns(given: Any, labels: Sequence[str], source: HuggingFace, where: str) -> None:
    named = [("label", each) for each in labels]
    named += [(part, getattr(source, part)) for part in ("client", "time", "image")]
    named += [("dropped", each) for each in source.drop]
    for part, name in named:
        if name is not None and name not in given.features:
            raise UnknownName(f"{part} column in {where}:", name, given.features)


def _read_class_names(found: Any, labels: Sequence[str]) -> list[str]:
    """Return the names of a ClassLabel; empty: the label is another type."""
    feature = found.features[labels[0]]
    return list(feature.names) if len(labels) == 1 and hasattr(feature, "names") else []


def _check_labelled(given: Any, label: str, split: str | None, where: str) -> None:
    codes = _read_columns(given, [label]).column(label).to_pylist()
    lowest = min((code for code in codes if code is not None), default=0)
    if lowest < 0:
        raise DataError(
            f"{where}: {label!r} is {lowest} in split {split!r}, which means that these rows have "
            "no label. Choose another split, or filter such rows."
        )


def _read_columns(given: Any, names: list[str]) -> pa.Table:
    table: pa.Table = given.select_columns(names).with_format("arrow")[:]
    return table


def _read_table(given: Any, labels: Sequence[str]) -> pa.Table:
    """Return all columns; features that are codes with names become texts, that is categories."""
    import pyarrow as pa

    table: pa.Table = given.with_format("arrow")[:]
    for position, (name, feature) in enumerate(given.features.items()):
        if hasattr(feature, "names") and name not in labels:
            codes = table.column(name).to_pylist()
            texts = [None if code is None else feature.names[code] for code in codes]
            table = table.set_column(position, name, pa.array(texts, pa.string()))
    return table


def _find_array_column(
    found: Any, labels: Sequence[str], source: HuggingFace, where: str
) -> str | None:
    """Return the column of images or arrays that is the sample; None: a table."""
    used = {*labels, source.client, source.time, *source.drop}
    chosen = source.features or [name for name in found.features if name not in used]
    if source.image is not None:
        return source.image
    images = [n for n in chosen if type(found.features.get(n)).__name__ == "Image"]
    if len(images) > 1:
        raise ConfigError(
            f"{where} has {len(images)} image columns: {', '.join(images)}. Choose one "
            f"({format_setting('data.image', images[0])})."
        )
    if images:
        return images[0]
    arrays = [n for n in chosen if n in found.features and _is_array(found.features[n])]
    if arrays and len(chosen) > 1:
        raise ConfigError(
            f"{where}: column {arrays[0]!r} holds arrays, which are used alone, but the features "
            f"are {', '.join(chosen)}. Use it alone "
            f"({format_setting('data.features', [arrays[0]])}), or drop it "
            f"({format_setting('data.drop', [arrays[0]])})."
        )
    return arrays[0] if arrays else None


def _is_array(feature: Any) -> bool:
    return hasattr(feature, "feature") or type(feature).__name__.startswith("Array")


def _convert_arrays(
    found: Any,
    held: Any,
    column: str,
    labels: Sequence[str],
    source: HuggingFace,
    where: str,
) -> Dataset:
    """Return the data set of a column of images or arrays."""
    others = [*labels, *(name for name in (source.client, source.time) if name is not None)]
    table = _read_columns(found, others)
    client = None
    if source.client is not None:
        client = np.array(read_column(table, source.client, where).to_pylist())
    return dataset_from_arrays(
        _read_arrays(found, column, source, where),
        _read_targets(table, labels, where),
        client=client,
        time=None if source.time is None else read_seconds(table, source.time, where),
        x_test=None if held is None else _read_arrays(held, column, source, where),
        y_test=(
            None
            if held is None
            else _read_targets(_read_columns(held, list(labels)), labels, where)
        ),
        name=source.name.replace("/", "-"),
        rules=source,
        where=where,
    )


def _read_arrays(given: Any, column: str, source: HuggingFace, where: str) -> npt.NDArray[Any]:
    rows = (row[column] for row in given.select_columns([column]))
    shown = show_progress(rows, len(given), f"reading {source.name}")
    return stack_samples(shown, len(given), where, "row")


def _read_targets(table: pa.Table, labels: Sequence[str], where: str) -> npt.NDArray[Any]:
    columns = [np.array(read_column(table, name, where).to_pylist()) for name in labels]
    return columns[0] if len(columns) == 1 else np.column_stack(columns)
