"""``thalweg predict``"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

import thalweg as package
from thalweg.data import Dataset

Command = Callable[..., CompletedProcess[str]]
HEADER = "age,town,ill\n"


def write_rows(path: Path, rows: list[tuple[float, str, str]], header: str = HEADER) -> None:
    path.write_text(header + "".join(",".join(map(str, row)) + "\n" for row in rows))


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run whose model separates ages below and above 50."""
    age = np.linspace(20, 80, 60)
    columns = {
        "age": age,
        "town": ["Ulm", "Bonn", "Bonn"] * 20,
        "who": ["a", "b"] * 30,
        "ill": np.where(age > 50, "yes", "no"),
    }
    data = Dataset.from_frame(columns, label="ill", client="who")
    folder = tmp_path / "trained"
    settings = {"lr": 0.5, "passes": 5}
    package.run("fedavg", data, model="linear", rounds=4, local=settings, out=folder)
    return folder


def test_predictions_keep_the_order_of_the_rows(
    thalweg: Command, run_folder: Path, tmp_path: Path
) -> None:
    write_rows(tmp_path / "new.csv", [(78, "Ulm", "yes"), (21, "Bonn", "yes"), (75, "Ulm", "yes")])
    done = thalweg(
        "predict", str(run_folder), "--data", "new.csv", "--out", "out.csv", "--probabilities"
    )
    assert done.returncode == 0, done.stderr
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["prediction"] for row in rows] == ["yes", "no", "yes"]
    assert list(rows[0]) == ["prediction", "probability_no", "probability_yes"]
    assert float(rows[0]["probability_no"]) + float(rows[0]["probability_yes"]) == pytest.approx(1)
    assert done.stdout == "3 predictions in out.csv\naccuracy 0.6667 on the labels in the file\n"


def test_label_is_optional_and_a_client_may_be_named(
    thalweg: Command, run_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "new.csv").write_text("town,age\nUlm,78\n")
    words = ("predict", str(run_folder), "--data", "new.csv", "--out", "out.parquet")
    done = thalweg(*words, "--client", "b")
    assert (done.returncode, done.stdout) == (0, "1 predictions in out.parquet\n")
    done = thalweg(*words, "--client", "c")
    assert done.returncode == 2
    assert "unknown client 'c'; known: a, b" in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age\n1\n", "column town is missing; expected the columns age, town, got age"),
        ("age,town\n1,Rom\n", "is 'Rom'; expected one of Bonn, Ulm"),
    ],
)
def test_unsuitable_files_are_rejected(
    thalweg: Command, run_folder: Path, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "new.csv").write_text(text)
    done = thalweg("predict", str(run_folder), "--data", "new.csv", "--out", "out.csv")
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "out.csv").exists()
