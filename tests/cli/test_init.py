"""The project of ``thalweg init`` works as created."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import thalweg
from thalweg.cli.init import HOURS, PUMPS, make_table, write_example
from thalweg.cli.main import app
from thalweg.core.errors import ConfigError
from thalweg.data.checks import find_problems


def test_script_of_the_project_runs(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["init", str(tmp_path / "new")])
    assert done.exit_code == 0, done.output
    assert "python run.py" in done.output
    environment = {**os.environ, "PYTHONPATH": str(Path(thalweg.__file__).parents[1])}
    ran = subprocess.run(
        [sys.executable, "-W", "error", "run.py", "2"],
        cwd=tmp_path / "new",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert [line.split()[0] for line in ran.stdout.splitlines()] == ["fedavg", "newest"]


def test_command_of_the_readme_can_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_example(tmp_path)
    monkeypatch.chdir(tmp_path)
    sets = [f"data.{each}" for each in ("label=state", "client=pump", "time=time", "drop=cost")]
    words = ["run", "fedavg", "--on", "pumps.csv", "--model", "net.py:Net", "--rounds", "1"]
    words += ["--set", "memory=memory.py:Newest", *(w for each in sets for w in ("--set", each))]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    text = (tmp_path / "README.md").read_text()
    assert all(f"--set {each}" in text for each in sets)


def test_table_has_the_problems_that_the_page_shows(tmp_path: Path) -> None:
    rows = make_table().splitlines()
    assert make_table() == "\n".join(rows) + "\n"
    assert len(dict.fromkeys(rows)) == PUMPS * HOURS + 1  # and the header
    assert make_table(seed=1) != make_table()
    names = rows[0].split(",")
    columns = list(zip(*(row.split(",") for row in rows[1:]), strict=True))
    frame = {name: list(column) for name, column in zip(names, columns, strict=True)}
    for name in ("temperature", "vibration", "pressure", "cost"):
        frame[name] = [float(value) for value in frame[name]]  # type: ignore[misc]
    del frame["time"]
    leak, repeated = find_problems(thalweg.Dataset.from_frame(frame, label="state"))
    assert leak.startswith("'cost' alone almost determines the target")
    assert "67 of 1267 rows repeat another row" in repeated


def test_folder_with_files_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    with pytest.raises(ConfigError, match="expected a new or empty folder"):
        write_example(tmp_path)
    with pytest.raises(ConfigError, match="expected a new or empty folder"):
        write_example(tmp_path / "mine.txt")
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def test_net_of_the_project_takes_the_number_of_features_from_the_data(tmp_path: Path) -> None:
    write_example(tmp_path)
    x = np.random.default_rng(0).normal(size=(60, 9))
    data = thalweg.Dataset.from_arrays(x, np.arange(60) % 2)
    net = f"{tmp_path / 'net.py'}:Net"
    result = thalweg.run("fedavg", data, model=net, rounds=1)
    assert result.module().layers[0].in_features == 9
    three = thalweg.Dataset.from_arrays(x, np.arange(60) % 3)
    with pytest.raises(ConfigError, match=r"shape \(B, 3\) .*'options'"):
        thalweg.run("fedavg", three, model=net, rounds=1)
    settings = {"options": {"num_classes": 3}}
    thalweg.run("fedavg", three, model=net, net=settings, rounds=1)
