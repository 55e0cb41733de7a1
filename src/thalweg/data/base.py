"""The `Dataset`: arrays of samples, labels, clients and times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import DataError
from thalweg.core.remedies import messages_for
from thalweg.core.transforms import Kind
from thalweg.core.types import Floats, Ints
from thalweg.core.views import View
from thalweg.data.features import Scale
from thalweg.data.preprocessing import InputColumn, Preprocessing
from thalweg.data.views import (
    ViewTransforms,
    check_views,
    collect_transforms,
    map_labels,
    take_samples,
)

Part = Literal["train", "test"]
Task = Literal["classification", "regression"]
Targets = npt.NDArray[Any]  # class labels, int64 (n,), or numbers, float32 (n,) or (n, D)
Samples = npt.NDArray[np.uint8] | npt.NDArray[np.uint16] | npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """One store of samples. Streams and memories hold row numbers, not samples.

    Images are uint8 with channels last, (n, H, W, C), and are normalised to ``(x / 255 - mean) /
    std`` when a batch is gathered; features are float32, (n, F) or of any other shape (n, ...),
    such as windows (n, T, F), and used as they are; sequences are codes 0 .. num_codes - 1, uint8
    or uint16, (n, L), which a net receives as integers.

    Images in a memory-mapped file stay there: `x` is then the whole file, and `index` has the rows
    of the training samples. Use `samples` to read samples of either kind.

    With V views there are V rows for each of the n samples of a part: row v * n + i is sample i in
    view v. The first n rows are always the samples in the identity view.

    The task is classification if there are classes. With ``num_classes=0`` it is regression: the
    targets are float32, (n,) or (n, D) for D numbers per sample, and are used as they are.
    """

    name: str
    x: Samples  # (n, H, W, C), (n, ...) or (n, L)
    y: Targets  # (n,) labels 0 .. num_classes - 1; regression: float32, (n,) or (n, D)
    x_test: Samples
    y_test: Targets
    num_classes: int  # 0: regression
    mean: tuple[float, ...] = ()  # per channel; images only
    std: tuple[float, ...] = ()
    client: Ints | None = None  # (n,) client of each training sample, from 0
    time: Floats | None = None  # (n,) time of each training sample
    class_names: tuple[str, ...] = ()  # num_classes names, or empty
    client_names: tuple[str, ...] = ()  # one name per client, or empty
    client_test: Ints | None = None  # (n_test,) client of each test sample
    coarse: Ints | None = None  # (n,) coarse label of each training sample, from 0
    num_codes: int = 0  # number of different codes in sequences; 0: the samples are not sequences
    views: tuple[View, ...] = ()  # V views, the first one is the identity; empty: no views
    columns: tuple[str, ...] = ()  # names of the F features, or empty
    scale: Scale | Literal["moving"] | None = None  # of features; "moving": online, per client
    encoding: tuple[InputColumn, ...] = ()  # columns of a table that became features, or empty
    target_names: tuple[str, ...] = ()  # columns that are predicted, or empty
    client_column: str = ""  # name of the column of clients, if it is known
    time_column: str = ""  # name of the column of times, if it is known
    index: Ints | None = None  # (n,) rows of `x` that are the training samples; None: all of them
    index_test: Ints | None = None  # the same for `x_test`, which may be the same array as `x`
    split: str = ""  # how the test part was chosen, in words; empty: as published

    def __post_init__(self) -> None:
        if len(self.y) == 0:
            raise DataError(f"{self.name}: the training part has no samples.")
        for x, y, index, part in (
            (self.x, self.y, self.index, "train"),
            (self.x_test, self.y_test, self.index_test, "test"),
        ):
            n = len(x if index is None else index)
            if n != len(y):
                raise DataError(f"{self.name}: {n} samples but {len(y)} labels in {part}.")
            if self.task == "regression":
                self._check_numbers(y, part)
            elif len(y) and not (y.min() >= 0 and y.max() < self.num_classes):
                raise DataError(
                    f"{self.name}: labels in {part} run from {y.min()} to {y.max()}, "
                    f"expected 0 to {self.num_classes - 1}."
                )
            if self.is_sequence:
                self._check_codes(x, part)
        for column, name in ((self.client, "client"), (self.time, "time"), (self.coarse, "coarse")):
            self._check_length(column, name, len(self.y), "training")
        self._check_length(self.client_test, "client_test", len(self.y_test), "test")
        self._check_clients()
        if self.time is not None and not np.isfinite(self.time).all():
            raise DataError(f"{self.name}: time must contain finite numbers.")
        if self.coarse is not None and self.coarse.min() < 0:
            raise DataError(
                f"{self.name}: coarse labels must be at least 0, got {self.coarse.min()}."
            )
        if self.class_names and len(self.class_names) != self.num_classes:
            raise DataError(
                f"{self.name}: {len(self.class_names)} class names for {self.num_classes} classes"
                + ("." if self.num_classes else " (regression); leave class_names out.")
            )
        if self.task == "regression":
            self._check_no_classes()
        if self.views:
            number = max(len(self.y), len(self.y_test))
            check_views(self.views, self.x, self.kind, self.num_stream_classes, number)

    @property
    def task(self) -> Task:
        return "classification" if self.num_classes > 0 else "regression"

    def __repr__(self) -> str:
        task = f"{self.num_classes} classes" if self.num_classes else "regression"
        clients = "" if self.client is None else f", {len(np.unique(self.client))} clients"
        times = "" if self.time is None else ", with times"
        return (
            f"Dataset({self.name!r}, {len(self.y)} training and {len(self.y_test)} test rows of "
            f"shape {tuple(self.x.shape[1:])}, {task}{clients}{times})"
        )

    @property
    def preprocessing(self) -> Preprocessing:
        """The rules that turn raw rows into samples, and outputs into predictions."""
        dtype: Any = self.x.dtype.name
        return Preprocessing(
            task=self.task,
            shape=tuple(self.x.shape[1:]),
            dtype=dtype,
            columns=self.encoding or tuple(InputColumn(name) for name in self.columns),
            scale=self.scale,
            mean=tuple(map(float, self.mean)),
            std=tuple(map(float, self.std)),
            num_codes=self.num_codes,
            class_names=self.class_names,
            num_outputs=self.num_outputs,
            target_names=self.target_names,
            client_column=self.client_column,
            time_column=self.time_column,
        )

    @classmethod
    @messages_for("dataset")
    def from_arrays(
        cls,
        X: Any,
        y: Any,
        *,
        client: Any = None,
        time: Any = None,
        X_test: Any = None,
        y_test: Any = None,
        name: str = "arrays",
        **rules: Any,
    ) -> Dataset:
        """Return a data set of arrays or tensors.

        `X` is uint8 images (n, H, W) or (n, H, W, C), a table (n, F), or numbers of any other shape
        (n, ..., C), such as windows (n, T, C). `y` is class labels (whole numbers or text) or
        numbers. `client` and `time` have one entry for each row. Without a test part, rows are held
        out. `rules` are fields of `thalweg.data.Rules`: test_fraction, hold_out, standardise, task.

        >>> data = Dataset.from_arrays(np.eye(10), ["a", "b"] * 5, client=[0, 1] * 5)
        >>> data.x.shape, data.x_test.shape, data.class_names, data.client_names
        ((8, 10), (2, 10), ('a', 'b'), ('0', '1'))
        """
        from thalweg.data.own import dataset_from_arrays, make_rules

        return dataset_from_arrays(
            X,
            y,
            name=name,
            client=client,
            time=time,
            x_test=X_test,
            y_test=y_test,
            rules=make_rules(rules),
        )

    @classmethod
    @messages_for("dataset")
    def from_frame(
        cls,
        frame: Any,
        *,
        label: str | Sequence[str],
        client: str | None = None,
        time: str | None = None,
        features: Sequence[str] | None = None,
        drop: Sequence[str] = (),
        name: str = "frame",
        **rules: Any,
    ) -> Dataset:
        """Return a data set of a table: pandas, Polars, Arrow, or a mapping of names to columns.

        `label`, `client` and `time` are names of columns; several labels mean regression with
        several outputs. All other columns are features, except those in `drop`: numbers are used as
        they are, texts with at most 50 different values become one input per value. `rules` are
        fields of `thalweg.data.Rules`: test_fraction, hold_out, standardise, task, missing.

        >>> columns = {"age": range(10), "town": ["Ulm", "Bonn"] * 5, "ill": ["no", "yes"] * 5}
        >>> Dataset.from_frame(columns, label="ill").columns
        ('age', 'town=Bonn', 'town=Ulm')
        """
        from thalweg.data.columns import to_arrow
        from thalweg.data.own import dataset_from_table, make_rules

        table = to_arrow(frame)
        if table is None:
            raise DataError(
                f"expected a table (pandas, Polars, Arrow, or a mapping of names to columns), got "
                f"{type(frame).__name__}. Use Dataset.from_arrays(X, y) for arrays."
            )
        return dataset_from_table(
            table,
            name=name,
            label=label,
            client=client,
            time=time,
            features=features,
            drop=drop,
            rules=make_rules(rules),
        )

    @classmethod
    @messages_for("dataset")
    def from_huggingface(
        cls,
        dataset: Any,
        *,
        label: str | Sequence[str],
        split: str = "train",
        test_split: str | None = None,
        config: str | None = None,
        client: str | None = None,
        time: str | None = None,
        image: str | None = None,
        features: Sequence[str] | None = None,
        drop: Sequence[str] = (),
        name: str = "huggingface",
        **rules: Any,
    ) -> Dataset:
        """Return a data set of a `datasets.Dataset` or `DatasetDict`, or of the Hub by its name.

        The splits are `split` and `test_split`; without a test split, rows are held out. Images
        must have one size; the names of a ClassLabel are the class names. `config` is the
        configuration of a data set on the Hub. The other arguments are those of `from_frame`.
        """
        from thalweg.data.huggingface import HuggingFace, load_object
        from thalweg.data.own import make_rules

        source = HuggingFace(
            name=dataset if isinstance(dataset, str) else name,
            label=label if isinstance(label, str) else tuple(label),
            config=config,
            split=split,
            test_split=test_split,
            client=client,
            time=time,
            image=image,
            features=None if features is None else tuple(features),
            drop=tuple(drop),
            **vars(make_rules(rules)),
        )
        return source.load(None, 0) if isinstance(dataset, str) else load_object(dataset, source)

    @classmethod
    @messages_for("dataset")
    def from_stream(
        cls,
        samples: Iterable[Any],
        *,
        limit: int | None = None,
        drop: Sequence[str] = (),
        name: str = "stream",
        **rules: Any,
    ) -> Dataset:
        """Return a data set of an iterator of (x, y), (x, y, client) or (x, y, client, time).

        `x` is a mapping of names to numbers and texts, as in River, or a sequence, an array, a
        tensor or a PIL image, of the same shape in every item. At most `limit` items are read, into
        memory. `drop` names features that are not used. `rules` are those of `from_frame`.

        >>> rows = (({"heat": i % 7}, i % 2, f"room {i % 3}", i) for i in range(1000))
        >>> data = Dataset.from_stream(rows, limit=30)
        >>> data.x.shape, data.columns, data.client_names
        ((24, 1), ('heat',), ('room 0', 'room 1', 'room 2'))
        """
        from thalweg.data.own import make_rules
        from thalweg.data.samples import dataset_from_samples

        return dataset_from_samples(
            samples, name=name, limit=limit, drop=tuple(drop), rules=make_rules(rules)
        )

    @classmethod
    @messages_for("dataset")
    def from_torch(
        cls, dataset: Any, *, limit: int | None = None, name: str = "", **rules: Any
    ) -> Dataset:
        """Return a data set of a map-style PyTorch dataset with items (x, y).

        Items may also contain a client and a time, as in `from_stream`. Images should be PIL images
        or uint8 arrays (H, W, C): they are stored as bytes, and scaled when they are read.
        """
        from thalweg.data.own import make_rules
        from thalweg.data.samples import dataset_from_samples, iterate_torch

        return dataset_from_samples(
            iterate_torch(dataset),
            name=name or type(dataset).__name__,
            limit=limit,
            total=len(dataset),
            rules=make_rules(rules),
            where=type(dataset).__name__,
        )

    @property
    def num_outputs(self) -> int:
        """Number of outputs of a net: one per class, or one per number to predict."""
        if self.task == "classification":
            return self.num_classes
        return 1 if self.y.ndim == 1 else int(self.y.shape[1])

    @property
    def num_stream_classes(self) -> int:
        """Number of classes in `all_classes`; 1 in a regression."""
        return max(self.num_classes, 1)

    @property
    def kind(self) -> Kind:
        if self.is_image:
            return "images"
        return "sequences" if self.is_sequence else "features"

    @property
    def is_image(self) -> bool:
        return self.x.ndim == 4 and self.x.dtype == np.uint8

    @property
    def is_sequence(self) -> bool:
        return self.num_codes > 0

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample for a net: (C, H, W), that of features, or (L, num_codes) for codes.

        A sequence is a matrix of one-hot rows; stored and passed on are the positions of the ones.
        """
        if self.is_image:
            height, width, channels = self.x.shape[1:]
            return (channels, height, width)
        if self.is_sequence:
            return (self.x.shape[1], self.num_codes)
        return tuple(self.x.shape[1:])

    def num_samples(self, part: Part) -> int:
        """Number of samples n of a part, independent of views."""
        return len(self.y if part == "train" else self.y_test)

    def num_rows(self, part: Part) -> int:
        """Number of rows V * n of a part."""
        return self.num_samples(part) * max(len(self.views), 1)

    def samples(self, part: Part, rows: npt.NDArray[np.integer[Any]]) -> npt.NDArray[Any]:
        """Copies of the samples in rows of any shape, in their views."""
        is_train = part == "train"
        x, index = (self.x, self.index) if is_train else (self.x_test, self.index_test)
        if self.views:
            return take_samples(x, rows, self._view_transforms, index)
        return np.take(x, rows, axis=0) if index is None else x[index[rows]]

    def unscale(self, samples: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Samples before their features were scaled, up to rounding."""
        if not isinstance(self.scale, Scale):
            return samples
        width, centre = (np.reshape(each, self.x.shape[1:]) for each in self.scale[::-1])
        found: Floats = samples * width + centre
        return found

    def labels(self, part: Part, rows: npt.NDArray[np.integer[Any]]) -> Targets:
        """Targets of rows of any shape, in their views: class labels or numbers."""
        return np.take(self.all_labels(part), rows, axis=0)

    def all_labels(self, part: Part) -> Targets:
        """(V * n,) or (V * n, D) targets of all rows of a part."""
        return self._all_labels if part == "train" else self._all_labels_test

    def all_classes(self, part: Part) -> Ints:
        """(V * n,) the class of all rows of a part. In regression all rows have class 0.

        Streams and policies use it. Those that need class labels are rejected for regression.
        """
        labels = self.all_labels(part)
        if self.task == "classification":
            return labels
        return np.zeros(len(labels), dtype=np.int64)

    @cached_property
    def _view_transforms(self) -> ViewTransforms:
        return collect_transforms(self.views)

    @cached_property
    def _all_labels(self) -> Targets:
        return map_labels(self.y, self.views, self.num_classes) if self.views else self.y

    @cached_property
    def _all_labels_test(self) -> Targets:
        return map_labels(self.y_test, self.views, self.num_classes) if self.views else self.y_test

    def _check_length(
        self, column: Ints | Floats | None, name: str, expected: int, part: str
    ) -> None:
        if column is not None and len(column) != expected:
            raise DataError(
                f"{self.name}: {expected} {part} samples but {len(column)} entries "
                f"in {name}; expected one for each."
            )

    def _check_numbers(self, y: Targets, part: str) -> None:
        shape = self.y.shape[1:]
        if y.dtype != np.float32 or y.ndim not in (1, 2) or y.shape[1:] != shape or 0 in shape:
            raise DataError(
                f"{self.name}: without classes (num_classes=0) the targets are numbers: expected "
                f"float32 of shape (n,) or (n, D), the same D in both parts, got {y.dtype} of "
                f"shape {y.shape} in {part}. Convert them (y.astype('float32')), or set "
                "num_classes for class labels."
            )
        if not np.isfinite(y).all():
            row = int(np.argmin(np.isfinite(y).reshape(len(y), -1).all(axis=1)))
            raise DataError(
                f"{self.name}: the target in row {row} of {part} is {y[row]}; expected finite "
                "numbers. Drop the row or fill in a value."
            )

    def _check_no_classes(self) -> None:
        if self.coarse is not None:
            raise DataError(
                f"{self.name}: coarse describes classes, but the targets are numbers "
                "(num_classes=0). Leave coarse out, or set num_classes."
            )

    def _check_clients(self) -> None:
        if self.client is None and self.client_test is not None:
            raise DataError(
                f"{self.name}: client_test gives the clients of the test samples, but there is no "
                "client for the training samples; expected both."
            )
        for client in (self.client, self.client_test):
            if client is None or not len(client):
                continue
            if client.min() < 0:
                raise DataError(f"{self.name}: clients must be at least 0, got {client.min()}.")
            if self.client_names and client.max() >= len(self.client_names):
                raise DataError(
                    f"{self.name}: {len(self.client_names)} names of clients, but a sample of "
                    f"client {client.max()}; expected clients 0 to {len(self.client_names) - 1}."
                )

    def _check_codes(self, x: npt.NDArray[np.generic], part: str) -> None:
        if x.ndim != 2 or x.dtype not in (np.uint8, np.uint16):
            raise DataError(
                f"{self.name}: sequences of codes are uint8 or uint16 of shape (n, L), "
                f"got {x.dtype} of shape {x.shape} in {part}."
            )
        if x.size and x.max() >= self.num_codes:
            raise DataError(
                f"{self.name}: codes in {part} run up to {x.max()}, "
                f"expected 0 to {self.num_codes - 1}."
            )


class DataSource(Protocol):
    """Protocol of a data source: a frozen dataclass that loads a data set."""

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read or generate the data set.

        `data_dir` is the folder given by the user; None: the default folders. `seed` is that of the
        run: it changes generated (synthetic) data, but neither files nor their splits.
        """
        ...


@runtime_checkable
class Locatable(Protocol):
    """A source that can check quickly whether its data are available."""

    def locate(self, data_dir: Path | None) -> object:
        """Find the files or download them; `DataError` with instructions if neither works."""
        ...


def check_available(source: DataSource, data_dir: Path | None, seed: int) -> None:
    """Raise `DataError` if a data set is not available, without loading it if possible."""
    if isinstance(source, Locatable):
        source.locate(data_dir)
    else:
        source.load(data_dir, seed)
