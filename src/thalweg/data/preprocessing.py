"""The rules that turn raw rows into the inputs of a net, and its outputs into predictions.

A run saves them beside its model (``preprocessing.json``), so that the model can be used on new
rows: see `Preprocessing.transform` and `Preprocessing.decode`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import DataError, format_names
from thalweg.core.remedies import format_setting, is_command_line
from thalweg.core.size_limits import check_memory
from thalweg.core.types import Floats
from thalweg.data.columns import (
    FEWER_ROWS,
    NUMBER,
    check_texts,
    is_numeric,
    is_text,
    read_numbers,
    text_to_numbers,
    to_arrow,
)
from thalweg.data.features import Scale, apply_scale, find_unusable

if TYPE_CHECKING:
    import pyarrow as pa

MAX_CATEGORIES = 50  # a text column with more different values is rejected
MISSING = "(missing)"  # the category of missing texts

Missing = Literal["reject", "fill", "drop"]
"""Missing values: an error; the mean of the training part (texts: a category of their own); or the
row is left out."""


@dataclass(frozen=True)
class InputColumn:
    """One column of a table: numbers, or texts with one input per category."""

    name: str
    categories: tuple[str, ...] = ()
    """The different texts in sorted order, or empty for numbers."""
    fill: float | None = None
    """Replaces missing numbers; None: missing numbers are rejected."""
    from_text: bool = False
    """The numbers were stored as texts."""

    @property
    def inputs(self) -> list[str]:
        """Names of the inputs of a net that come from this column.

        >>> InputColumn("age").inputs, InputColumn("town", ("Bonn", "Ulm")).inputs
        (['age'], ['town=Bonn', 'town=Ulm'])
        """
        return [f"{self.name}={each}" for each in self.categories] or [self.name]


@dataclass(frozen=True)
class Preprocessing:
    """How raw rows become samples, and how outputs of a net become predictions.

    >>> columns = (InputColumn("age"), InputColumn("height"))
    >>> two = Preprocessing("classification", (2,), columns=columns, class_names=("no", "yes"),
    ...                     scale=Scale((30.0, 170.0), (10.0, 5.0)))
    >>> two.transform({"height": [175.0], "age": [20.0], "town": ["Ulm"]}).tolist()
    [[-1.0, 1.0]]
    >>> two.decode(np.array([[0.2, 0.8]])).tolist()
    ['yes']
    """

    task: Literal["classification", "regression"]
    shape: tuple[int, ...]
    """Shape of one stored sample: (F,) for tables, (H, W, C) for images."""
    dtype: Literal["float32", "uint8", "uint16"] = "float32"
    columns: tuple[InputColumn, ...] = ()
    """Columns of a table in their order; empty for arrays."""
    scale: Scale | Literal["moving"] | None = None
    """Samples are (x - centre) / width; moving: by what each client has seen before."""
    mean: tuple[float, ...] = ()
    """Of images, per channel: a net receives (x / 255 - mean) / std."""
    std: tuple[float, ...] = ()
    num_codes: int = 0
    """Number of codes of sequences; 0: not sequences."""
    class_names: tuple[str, ...] = ()
    num_outputs: int = 0
    target_names: tuple[str, ...] = ()
    """Names of the columns to predict, if they are known."""
    client_column: str = ""
    """The column with the client of each row; empty: none."""
    time_column: str = ""
    """The column with the time of each row; empty: none."""

    def transform(self, rows: Any) -> npt.NDArray[Any]:
        """Return rows as samples (n, *shape), checked, encoded and scaled as the training data.

        `rows` is an array, a tensor, or, if the columns are known, a table: pandas, Polars, Arrow,
        or a mapping of names to columns. A table may have further columns.
        """
        table = None if isinstance(rows, np.ndarray) else to_arrow(rows)
        if table is not None:
            return self._scale(self._encode(table))
        x = np.asarray(rows)
        if x.dtype.kind not in "fiub":
            raise DataError(f"{self._expected}; got {x.dtype} of shape {x.shape}.")
        if self.dtype == "uint8" and len(self.shape) == 3 and self.shape[-1] == 1:
            x = x[..., None] if x.ndim == 3 else x  # (n, H, W)
        if x.ndim != len(self.shape) + 1 or x.shape[1:] != self.shape:
            raise DataError(f"{self._expected}; got an array of shape {x.shape}.")
        if self.dtype != "float32":
            if x.dtype.name != self.dtype:
                raise DataError(f"{self._expected}; got {x.dtype} of shape {x.shape}.")
            return x
        if any(column.categories for column in self.columns):
            raise DataError(
                "the columns of an array cannot be texts, but the model was trained with text "
                f"columns. Pass a table with the columns {self._names}."
            )
        return self._scale(x.astype(np.float64))

    def decode(self, outputs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return predictions (n,) or (n, D): labels like those of the training data, or numbers.

        `outputs` (n, C) are those of a net. Labels are whole numbers if the names of all classes
        are, else texts.
        """
        if self.task == "regression":
            return outputs[:, 0] if outputs.ndim == 2 and outputs.shape[1] == 1 else outputs
        best: npt.NDArray[Any] = outputs.argmax(axis=1)
        if not self.class_names:
            return best
        is_number = all(re.fullmatch(r"0|-?[1-9]\d*", name) for name in self.class_names)
        return np.take(np.array(self.class_names).astype(int if is_number else str), best)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; `from_dict` restores them exactly."""
        plain = asdict(self)
        if isinstance(self.scale, Scale):
            plain["scale"] = self.scale._asdict()
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Preprocessing:
        """Restore the values of `to_dict`."""
        scale = plain["scale"]
        if isinstance(scale, Mapping):
            scale = Scale(tuple(scale["centre"]), tuple(scale["width"]))
        columns = tuple(
            InputColumn(**{**each, "categories": tuple(each["categories"])})
            for each in plain["columns"]
        )
        tuples = ("shape", "mean", "std", "class_names", "target_names")
        changes = {name: tuple(plain[name]) for name in tuples}
        return cls(**{**plain, **changes, "columns": columns, "scale": scale})

    @property
    def _names(self) -> str:
        return ", ".join(column.name for column in self.columns)

    @property
    def _expected(self) -> str:
        shape = ", ".join(map(str, ("n", *self.shape)))
        of = f" (columns {self._names})" if self.columns else ""
        return f"expected {self.dtype} of shape ({shape}){of}, as in the training data"

    def _encode(self, table: pa.Table) -> Floats:
        if not self.columns:
            raise DataError(
                f"{self._expected}; got a table, but the names of the columns are not known. Pass "
                "an array."
            )
        return encode_columns(table, self.columns, "the table")

    def _scale(self, x: Floats) -> npt.NDArray[np.float32]:
        if (at := find_unusable(x)) is not None:
            where = f"row {at[0]}, column {at[-1]}"
            raise DataError(f"{where} is {x[at]}; expected a finite number that fits in 32 bits.")
        if self.scale == "moving":
            raise DataError(
                "the training data were scaled by what each client had seen before, so that new "
                "rows cannot be scaled. Train with "
                f"{format_setting('data.standardise', False)}, and scale the rows."
            )
        if self.scale is not None:
            flat = x.reshape(len(x), -1)
            x = apply_scale(flat, self.scale).reshape(x.shape)
        return x.astype(np.float32)


def find_columns(
    table: pa.Table, names: Sequence[str], missing: Missing, where: str
) -> list[InputColumn]:
    """Return how each of these columns is used; `DataError` for those that cannot be used."""
    return [_find_column(table, name, missing, where) for name in names]


def _find_column(table: pa.Table, name: str, missing: Missing, where: str) -> InputColumn:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = table.schema.field(name).type
    if is_numeric(kind):
        return InputColumn(name)
    if text_to_numbers(table.column(name)) is not None:
        return InputColumn(name, from_text=True)
    value_kind = kind.value_type if isinstance(kind, pa.DictionaryType) else kind
    if pa.types.is_null(kind):
        raise DataError(f"{where}: column {name!r} has no values at all. {_drop(name)}")
    if pa.types.is_temporal(kind):
        raise DataError(
            f"{where}: column {name!r} holds times ({kind}); expected numbers or texts. Name it as "
            f"the time column ({format_setting('data.time', name)}), or drop it "
            f"({format_setting('data.drop', [name])})."
        )
    if not is_text(value_kind):
        if isinstance(kind, pa.DictionaryType) and is_numeric(value_kind):
            return InputColumn(name)
        raise DataError(
            f"{where}: column {name!r} is {kind}; expected numbers or texts. {_drop(name)}"
        )
    column = table.column(name)
    distinct = sorted(str(value) for value in pc.unique(column).to_pylist() if value is not None)
    if len(distinct) > MAX_CATEGORIES:
        if others := _describe_other_texts(column, distinct):
            raise DataError(
                f"{where}: column {name!r} has {len(distinct)} different texts, most of which are "
                f"numbers, but not {others}; expected numbers, or at most {MAX_CATEGORIES} "
                "categories. Correct these values, or drop the column "
                f"({format_setting('data.drop', [name])})."
            )
        raise DataError(
            f"{where}: column {name!r} has {len(distinct)} different texts; expected at most "
            f"{MAX_CATEGORIES} categories. "
            f"Encode it as numbers first, or name it as the client column if it identifies clients "
            f"({format_setting('data.client', name)}). {_drop(name)}"
        )
    has_missing = missing == "fill" and column.null_count > 0
    return InputColumn(name, (*distinct, *([MISSING] if has_missing else [])))


def _describe_other_texts(column: pa.ChunkedArray[Any], distinct: Sequence[str]) -> str:
    """Return some of the texts that are not numbers with their rows; empty: most are not."""
    others = [each for each in distinct if not re.match(NUMBER, each.strip())]
    if len(others) > len(distinct) / 2:
        return ""
    texts = column.to_pylist()
    return ", ".join(f"{each!r} (row {texts.index(each) + 1})" for each in others[:3])


def _drop(name: str) -> str:
    several = "; several columns: data.drop=a,b" if is_command_line() else ""
    return f"Drop it ({format_setting('data.drop', [name])}{several})."


def encode_columns(
    table: pa.Table, columns: Sequence[InputColumn], where: str, *, allow_missing: bool = False
) -> Floats:
    """Return (n, F) the inputs of these columns: numbers, and one indicator per category.

    Missing numbers are replaced by `InputColumn.fill`; if they are allowed, they become NaN.
    """
    known = table.column_names
    absent = [column.name for column in columns if column.name not in known]
    if absent:
        raise DataError(
            f"{where}: column {format_names(absent)} is missing; expected the columns "
            f"{format_names([column.name for column in columns])}, got {format_names(known)}."
        )
    num_inputs = sum(len(column.inputs) for column in columns)
    size = 8 * table.num_rows * num_inputs
    check_memory(size, f"{where}: encoding as {num_inputs} inputs", FEWER_ROWS)
    parts = [_encode_column(table, column, where, allow_missing) for column in columns]
    return np.concatenate(parts, axis=1) if parts else np.empty((table.num_rows, 0))


def _encode_column(table: pa.Table, column: InputColumn, where: str, allow_missing: bool) -> Floats:
    values = table.column(column.name)
    if not column.categories:
        if (numbers := text_to_numbers(values)) is not None:
            table = table.select([column.name]).set_column(0, column.name, numbers)
        if column.fill is None and not allow_missing:
            return read_numbers(table, column.name, where)[:, None]
        return _read_filled(table, column, where)[:, None]
    check_texts(values, column.name, where)
    texts = [MISSING if value is None else str(value) for value in values.to_pylist()]
    codes = {category: code for code, category in enumerate(column.categories)}
    for row, text in enumerate(texts):
        if text not in codes:
            got = "missing" if text == MISSING else repr(text)
            raise DataError(
                f"{where}: row {row + 1}, column {column.name!r} is {got}; expected one of "
                f"{', '.join(column.categories)}."
            )
    encoded = np.zeros((len(texts), len(column.categories)))
    encoded[np.arange(len(texts)), [codes[text] for text in texts]] = 1.0
    return encoded


def _read_filled(table: pa.Table, column: InputColumn, where: str) -> Floats:
    """Return numbers with missing values replaced by `InputColumn.fill`, or by NaN."""
    import pyarrow as pa

    values = table.column(column.name)
    if isinstance(values.type, pa.DictionaryType):
        values = values.cast(values.type.value_type)
    if not is_numeric(values.type):
        return read_numbers(table, column.name, where)  # explains the type
    numbers = np.array(values.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    is_missing = np.isnan(numbers)
    numbers[is_missing] = 0.0
    numbers = read_numbers(pa.table({column.name: numbers}), column.name, where).copy()
    numbers[is_missing] = np.nan if column.fill is None else column.fill
    return numbers
