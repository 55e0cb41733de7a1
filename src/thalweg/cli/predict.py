"""``thalweg predict``"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import typer

from thalweg.cli.code_files import print_code_files
from thalweg.cli.messages import print_message
from thalweg.core.errors import ConfigError, DataError
from thalweg.core.remedies import format_setting
from thalweg.data.columns import read_names, read_numbers, read_table
from thalweg.data.npz import read_npz
from thalweg.data.preprocessing import Preprocessing
from thalweg.engine.result import Result, load

if TYPE_CHECKING:
    import pyarrow as pa

TABLES = (".csv", ".parquet")
Column = npt.NDArray[Any]


class RowsToPredict(NamedTuple):
    """The contents of a file."""

    rows: Any  # a table or an array
    targets: Column | None = None  # if the file has them
    clients: Column | None = None  # of the rows of an array
    keys: Mapping[str, Any] = {}


def predict_command(
    run_folder: Path, *, data: Path, out: Path, client: str | None, probabilities: bool
) -> None:
    """Predict the rows of a file and write the predictions in the same order."""
    if out.suffix.lower() not in TABLES:
        raise ConfigError(f"--out {out}: expected a name that ends with .csv or .parquet.")
    result = load_run(run_folder)
    given = read_rows_to_predict(data, result.preprocessing)
    owner: Any = client
    if client is None and result.has_client_models:
        owner = result.find_client_column(given.rows) if given.clients is None else given.clients
        if owner is None:
            print_message(describe_common_model(result, data))
    shares = result.predict_proba(given.rows, owner) if probabilities else None
    predicted = result.predict(given.rows, owner)
    columns = {"row": np.arange(1, len(predicted) + 1), **given.keys}
    write_columns(out, columns | name_columns(result.preprocessing, predicted, shares))
    typer.echo(f"{len(predicted)} predictions in {out}")
    if given.targets is not None:
        typer.echo(describe_score(result, predicted, given.targets))
    if known := result.count_training_rows(given.rows):
        typer.echo(
            f"{known} of {len(predicted)} rows have the features of a training row, so that they "
            "do\nnot measure the accuracy on new rows"
        )


def load_run(folder: Path) -> Result:
    """Load a finished run; print before that which code of the user it imports."""
    print_code_files(folder)
    return load(folder)


def describe_common_model(result: Result, data: Path) -> str:
    """Return which model predicts rows without clients, if clients have different models."""
    name, used = result.preprocessing.client_column, result.get_mixture()
    mixtures = result.served.mixtures
    assert mixtures is not None
    number = int(mixtures.equal(used).sum())
    why = f"{data} has no column {name!r}" if name else "the training data had no client column"
    remedy = "Add the column, or choose" if name else "Choose"
    return (
        f"note: the clients of this run have different models, but {why}: one model predicts all "
        f"rows, which {number} of {len(result.clients)} clients use. {remedy} a client "
        f"({format_setting('client', 'NAME')})."
    )


def read_rows_to_predict(file: Path, rules: Preprocessing) -> RowsToPredict:
    """Return the rows of a file, and the targets and clients if the file has them."""
    if not file.is_file():
        raise DataError(f"--data {file}: expected a .csv, .parquet or .npz file, found no file.")
    suffix = file.suffix.lower()
    if suffix == ".npz":
        arrays = read_npz(file, ("x",), ("y", "client", "time"))
        keys: dict[str, Any] = {name: arrays[name] for name in ("client", "time") if name in arrays}
        return RowsToPredict(arrays["x"], arrays.get("y"), arrays.get("client"), keys)
    if suffix not in TABLES:
        raise DataError(
            f"--data {file}: expected a .csv, .parquet or .npz file, got {suffix or 'no suffix'}."
        )
    table = read_table(file)
    keys = {
        name: table.column(name)
        for name in (rules.client_column, rules.time_column)
        if name in table.column_names
    }
    return RowsToPredict(table, read_targets(table, rules, file), keys=keys)


def read_targets(table: pa.Table, rules: Preprocessing, file: Path) -> Column | None:
    """Return the targets of a table, if it has them: numbers, or labels as text."""
    names = rules.target_names
    if not names or any(name not in table.column_names for name in names):
        return None
    if rules.task == "regression":
        return np.stack([read_numbers(table, name, file) for name in names], axis=1)
    return np.array(read_names(table, names[0], file))


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


def write_columns(out: Path, columns: Mapping[str, Any]) -> None:
    """Write a CSV or Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import csv

    table = pa.table(dict(columns))
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
