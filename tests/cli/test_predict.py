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
    assert list(rows[0]) == ["row", "prediction", "probability_no", "probability_yes"]
    assert [row["row"] for row in rows] == ["1", "2", "3"]
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


def train_per_client(folder: Path, recipe: str = "local-only") -> None:
    """Clients a and b have opposite labels, so that their models disagree everywhere."""
    x, who = np.array([-1.0, 1.0] * 40), np.repeat(["a", "b"], 40)
    columns = {
        "x": x,
        "who": who,
        "day": np.arange(80),
        "up": np.where((x > 0) ^ (who == "b"), 1, 0),
    }
    data = Dataset.from_frame(columns, label="up", client="who", time="day")
    settings = {"lr": 0.5, "passes": 5}
    package.run(recipe, data, model="linear", rounds=4, local=settings, out=folder)


@pytest.mark.filterwarnings("ignore::thalweg.data.checks.DataWarning")
@pytest.mark.parametrize("recipe", ["local-only", "fine-tuned"])
def test_client_column_chooses_the_model_of_each_row(
    thalweg: Command, tmp_path: Path, recipe: str
) -> None:
    train_per_client(tmp_path / "run", recipe)
    (tmp_path / "new.csv").write_text("x,who,day,up\n1,a,7,1\n1,b,8,0\n-1,b,9,1\n5,b,9,0\n")
    words = ("predict", "run", "--data", "new.csv", "--out", "out.csv")
    done = thalweg(*words)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.csv").read_text().splitlines() == [
        '"row","who","day","prediction"',
        '1,"a",7,1',
        '2,"b",8,0',
        '3,"b",9,1',
        '4,"b",9,0',
    ]
    assert done.stderr == ""
    assert "accuracy 1.0000 on the labels in the file" in done.stdout
    assert "3 of 4 rows have the features of a training row" in done.stdout
    assert "accuracy 0.2500" in thalweg(*words, "--client", "a").stdout


@pytest.mark.filterwarnings("ignore::thalweg.data.checks.DataWarning")
def test_unknown_client_and_missing_client_column_are_reported(
    thalweg: Command, tmp_path: Path
) -> None:
    train_per_client(tmp_path / "run")
    words = ("predict", "run", "--data", "new.csv", "--out", "out.csv")
    (tmp_path / "new.csv").write_text("x,who\n1,a\n1,c\n1,d\n")
    done = thalweg(*words)
    assert done.returncode == 2
    assert "2 of 3 rows belong to clients without a model: c, d; known: a, b." in done.stderr
    assert "--client NAME" in done.stderr
    assert not (tmp_path / "out.csv").exists()
    (tmp_path / "new.csv").write_text("x\n1\n")
    done = thalweg(*words)
    assert done.returncode == 0
    assert "new.csv has no column 'who': one model predicts all rows, which 1 of 2" in done.stderr
    np.savez(tmp_path / "new.npz", x=np.ones((2, 1)), client=np.array(["a", "b"]))
    done = thalweg("predict", "run", "--data", "new.npz", "--out", "out.csv")
    assert done.stderr == ""
    assert (tmp_path / "out.csv").read_text().splitlines()[1:] == ['1,"a",1', '2,"b",0']


def test_wrong_array_is_rejected_with_both_shapes(
    thalweg: Command, run_folder: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "new.npz", x=np.zeros((4, 2)))
    done = thalweg("predict", str(run_folder), "--data", "new.npz", "--out", "out.csv")
    assert done.returncode == 2
    assert "expected float32 of shape (n, 3)" in done.stderr
    assert "got an array of shape (4, 2)" in done.stderr
