"""Shell completion: names by prefix, without importing the registries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import thalweg
from thalweg.cli.completion import (
    complete_name,
    complete_recipe,
    complete_scenario,
    complete_setting,
    complete_study,
)


def test_recipes_combinations_and_variants() -> None:
    assert complete_recipe("fedado") == []
    assert complete_recipe("fedada") == ["fedadam", "fedadagrad"]
    assert complete_recipe("fedprox+sfed") == ["fedprox+sfedpo"]
    assert complete_recipe("sfedpo,weights=eq") == ["sfedpo,weights=equal"]
    assert "river-tree" in complete_recipe("river")


def test_scenarios_and_data_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("digits-own.csv", "digits.txt", "deep/a.parquet"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    assert complete_scenario("digits-") == ["digits-full", "digits-partial", "digits-own.csv"]
    assert complete_scenario("deep/") == ["deep/a.parquet"]
    assert complete_scenario(f"{tmp_path}/d") == [f"{tmp_path}/digits-own.csv"]
    assert complete_scenario("missing/x") == []


def test_settings_first_parts_then_choices_and_fields() -> None:
    parts = complete_setting("")
    assert "memory=" in parts
    assert "rounds=" in parts
    assert all(part.endswith("=") and "." not in part for part in parts)
    assert complete_setting("memory=f") == ["memory=fifo"]
    assert complete_setting("memory.budg") == ["memory.budget=0.5"]
    assert complete_setting("world.num_") == ["world.num_clients="]  # several defaults
    one = complete_setting("memor")  # one part: all its choices and fields
    assert {"memory=fifo", "memory.budget=0.5"} <= set(one)


def test_studies_and_names() -> None:
    assert "sfedpo-table-1" in complete_study("sfedpo-t")
    assert complete_name("reserv") == ["reservoir"]


def test_shell_completion_imports_no_large_package() -> None:
    code = (
        "import sys\n"
        "from thalweg.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'numpy', 'sklearn', 'scipy', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(thalweg.__file__).parents[1]),
        "_THALWEG_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": "thalweg run sfedpo --on digits-par",
    }
    start = "import sys; sys.argv = ['thalweg']\n"
    done = subprocess.run(
        [sys.executable, "-c", start + code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "digits-partial" in done.stdout
