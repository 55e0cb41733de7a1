"""A data set without its samples: the format that clients with their own data need."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import BadMessage, ConfigError, ThalwegError
from thalweg.core.types import Ints
from thalweg.data import Dataset, Scale
from thalweg.network.sources import LiveBatch, SampleFormat, Targets, find_pending

MAX_SAMPLE_SIZE = 1 << 26  # maximum number of values in a sample


@dataclass(frozen=True)
class DataSchema:
    """Storage format of samples, normalisation, and meaning of the targets."""

    shape: tuple[int, ...]  # of one stored sample: (H, W, C), (F,) or (L,)
    dtype: Literal["uint8", "uint16", "float32"]
    num_classes: int  # 0: regression
    mean: tuple[float, ...] = ()  # per channel; images only
    std: tuple[float, ...] = ()
    num_codes: int = 0  # of sequences; 0: not sequences
    class_names: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()  # names of features, or empty
    centre: tuple[float, ...] = ()  # per feature: values become (x - centre) / width
    width: tuple[float, ...] = ()
    target_shape: tuple[int, ...] = ()  # regression: () for one number per sample, (D,) for D

    @property
    def sample_format(self) -> SampleFormat:
        """Format that a source must deliver."""
        return SampleFormat(
            self.shape,
            self.dtype,
            self.num_classes,
            self.class_names or None,
            self.columns or None,
            self.num_codes,
            self.centre,
            self.width,
            self.target_shape,
        )

    @property
    def is_regression(self) -> bool:
        return self.num_classes == 0

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample for a net, as `Dataset.input_shape`."""
        none = np.broadcast_to(np.zeros((), self.dtype), (1, *self.shape))
        return self.make_dataset(none, self.zero_targets(1)).input_shape

    def zero_targets(self, number: int) -> Targets:
        """An array of zeros for the targets of some samples."""
        targets = self.sample_format.empty_targets(number)
        targets[:] = 0
        return targets

    def make_dataset(self, x: npt.NDArray[Any], y: Targets) -> Dataset:
        """A data set with these samples (n, *shape) and their targets, without a test part."""
        return Dataset(
            name="live",
            x=x,
            y=y,
            x_test=np.empty((0, *self.shape), self.dtype),
            y_test=self.zero_targets(0),
            num_classes=self.num_classes,
            mean=self.mean,
            std=self.std,
            class_names=self.class_names,
            num_codes=self.num_codes,
        )

    def find_valid(self, batch: LiveBatch) -> Ints:
        """Positions of valid samples, including those whose labels may arrive later."""
        x, labels = batch.inputs, batch.labels
        if x.shape != (len(labels), *self.shape) or x.dtype != self.dtype:
            return np.empty(0, dtype=np.int64)
        if not self._fits_targets(labels):
            return np.empty(0, dtype=np.int64)
        # A later target needs the name of its sample.
        has_name = np.array([key != "" for key in batch.keys], dtype=bool)
        is_good = self.find_valid_targets(labels) | (find_pending(labels) & has_name)
        is_good &= np.isfinite(batch.times)
        if x.dtype.kind == "f":
            is_good &= np.isfinite(x).all(axis=tuple(range(1, x.ndim)))
        if self.num_codes:
            is_good &= (x < self.num_codes).all(axis=1)
        return np.flatnonzero(is_good)

    def find_valid_targets(self, labels: Targets) -> npt.NDArray[np.bool_]:
        """(B,) whether each target is known and valid: a class, or finite numbers."""
        if not self._fits_targets(labels):
            return np.zeros(len(labels), dtype=bool)
        if self.is_regression:
            return np.asarray(np.isfinite(labels).all(axis=tuple(range(1, labels.ndim))))
        return np.asarray((labels >= 0) & (labels < self.num_classes))

    def _fits_targets(self, labels: Targets) -> bool:
        """Whether the array has the shape and type of targets."""
        is_fitting = labels.dtype == np.float32 if self.is_regression else labels.dtype.kind == "i"
        return bool(is_fitting) and labels.shape == (len(labels), *self.target_shape)


def describe_dataset(data: Dataset) -> DataSchema:
    """The schema of a server's data set."""
    if data.scale == "moving":
        raise ConfigError(
            f"{data.name} scales every row by what its client has seen before, which clients with "
            "their own data do not support; serve it with --set data.standardise=false."
        )
    dtype: Any = data.x.dtype.name
    names, shape = data.class_names, tuple(data.x.shape[1:])
    mean, std = (tuple(map(float, numbers)) for numbers in (data.mean, data.std))
    scale = data.scale or Scale((), ())
    return DataSchema(
        shape,
        dtype,
        data.num_classes,
        mean,
        std,
        data.num_codes,
        names,
        data.columns,
        *scale,
        tuple(data.y.shape[1:]),
    )


def schema_to_json(schema: DataSchema) -> str:
    """Serialise a schema as JSON; floats are exact.

    >>> schema_from_json(schema_to_json(DataSchema((4,), "float32", 3))).shape
    (4,)
    """
    return json.dumps(asdict(schema))


def schema_from_json(text: str) -> DataSchema:
    """Parse and validate the JSON of `schema_to_json` from an untrusted sender."""
    try:
        plain = json.loads(text)
        schema = DataSchema(
            shape=tuple(_check_integer(size, 1) for size in plain["shape"]),
            dtype=plain["dtype"],
            num_classes=_check_integer(plain["num_classes"], 0),
            mean=tuple(map(float, plain["mean"])),
            std=tuple(map(float, plain["std"])),
            num_codes=_check_integer(plain["num_codes"], 0),
            class_names=tuple(map(str, plain["class_names"])),
            columns=tuple(map(str, plain["columns"])),
            centre=tuple(map(float, plain["centre"])),
            width=tuple(map(float, plain["width"])),
            target_shape=tuple(_check_integer(size, 1) for size in plain["target_shape"]),
        )
        size = max(schema.sample_format.size, schema.sample_format.num_targets)
        if size > MAX_SAMPLE_SIZE:
            raise ValueError(f"a sample of {size} numbers; at most {MAX_SAMPLE_SIZE} are allowed")
        if not schema.sample_format.is_image and (schema.mean or schema.std):
            raise ValueError("only images have a mean and a std")
        if (
            schema.sample_format.is_image
            and not len(schema.mean) == len(schema.std) == schema.shape[2]
        ):
            raise ValueError(f"images of {schema.shape[2]} channels need as many means and stds")
        if not np.isfinite(schema.mean).all() or not (np.array(schema.std) > 0).all():
            raise ValueError("means must be finite, stds positive")
        _ = schema.input_shape
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError, ThalwegError) as error:
        raise BadMessage(f"this is not a valid data schema: {str(error).rstrip('.')}.") from error
    return schema


def _check_integer(number: Any, least: int) -> int:
    if type(number) is not int or not least <= number < 2**31:
        raise ValueError(f"expected a whole number from {least}, got {number!r}")
    return number
