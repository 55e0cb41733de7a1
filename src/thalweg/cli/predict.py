"""``thalweg predict``"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import typer

from thalweg.core.errors import ConfigError, DataError
from thalweg.data.columns import read_column, read_numbers, read_table
from thalweg.data.npz import read_npz
from thalweg.data.preprocessing import Preprocessing
from thalweg.engine.result import Result, load

if TYPE_CHECKING:
    import pyarrow as pa

TABLES = (".csv", ".parquet")
Column = npt.NDArray[Any]


def predict_command(
    run_folder: Path, *, data: Path, out: Path, client: str | None, probabilities: bool
) -> None:
    """Predict the rows of a file and write the predictions in the same order."""
    if out.suffix.lower() not in TABLES:
        raise ConfigError(f"--out {out}: expected a name that ends with .csv or .parquet.")
    result = load(run_folder)
    rows, targets = read_rows_to_predict(data, result.preprocessing)
    shares = result.predict_proba(rows, client) if probabilities else None
    predicted = result.predict(rows, client)
    columns = name_columns(result.preprocessing, predicted, shares)
    write_columns(out, columns)
    typer.echo(f"{len(predicted)} predictions in {out}")
    if targets is not None:
        typer.echo(describe_score(result, predicted, targets))


def read_rows_to_predict(file: Path, rules: Preprocessing) -> tuple[Any, Column | None]:
    """Return the rows of a file, and the targets if the file has them."""
    if not file.is_file():
        raise DataError(f"--data {file}: expected a .csv, .parquet or .npz file, found no file.")
    suffix = file.suffix.lower()
    if suffix == ".npz":
        arrays = read_npz(file, ("x",), ("y", "client", "time"))
        return arrays["x"], arrays.get("y")
    if suffix not in TABLES:
        raise DataError(
            f"--data {file}: expected a .csv, .parquet or .npz file, got {suffix or 'no suffix'}."
        )
    table = read_table(file)
    names = rules.target_names
    if not names or any(name not in table.column_names for name in names):
        return table, None
    if rules.task == "regression":
        return table, np.stack([read_numbers(table, name, file) for name in names], axis=1)
    return table, read_labels(table, names[0], file)


def read_labels(table: pa.Table, name: str, file: Path) -> Column:
    """Return class labels as text, as in `Preprocessing.class_names`."""
    values = read_column(table, name, file).to_pylist()
    whole = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
    return np.array([str(value) for value in whole])


def name_columns(
    rules: Preprocessing, predicted: Column, shares: Column | None
) -> dict[str, Column]:
    """Return the columns of the output by name.

    >>> rules = Preprocessing("classification", (1,), class_names=("no", "yes"))
    >>> list(name_columns(rules, np.array(["no"]), np.array([[0.75, 0.25]])))
    ['prediction', 'probability_no', 'probability_yes']
    """
    if predicted.ndim == 1:
        columns = {"prediction": predicted}
    else:
        names = rules.target_names or tuple(map(str, range(predicted.shape[1])))
        columns = {f"prediction_{name}": predicted[:, i] for i, name in enumerate(names)}
    if shares is not None:
        classes = rules.class_names or tuple(map(str, range(shares.shape[1])))
        columns |= {f"probability_{name}": shares[:, i] for i, name in enumerate(classes)}
    return columns


def write_columns(out: Path, columns: dict[str, Column]) -> None:
    """Write a CSV or Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import csv

    table = pa.table(columns)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.suffix.lower() == ".parquet":
            pq.write_table(table, out)
        else:
            csv.write_csv(table, out)
    except OSError as error:
        raise DataError(f"--out {out} cannot be written: {error}.") from error


def describe_score(result: Result, predicted: Column, targets: Column) -> str:
    """Return the accuracy or the mean absolute error of predictions in words."""
    if result.preprocessing.task == "regression":
        numbers = targets.astype(np.float64).reshape(len(predicted), -1)
        errors = np.abs(predicted.reshape(len(predicted), -1) - numbers)
        return f"mean absolute error {errors.mean():.4f} on the targets in the file"
    labels = np.array([str(label) for label in targets.tolist()])
    right = np.array([str(label) for label in predicted.tolist()]) == labels
    return f"accuracy {right.mean():.4f} on the labels in the file"
