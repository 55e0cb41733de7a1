"""The notebooks run from top to bottom, without outputs in the repository."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from documentation.pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))


def read_code(notebook: Path) -> list[str]:
    """Return the code cells."""
    cells: list[dict[str, Any]] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[file.stem for file in NOTEBOOKS])
def test_notebook_runs(
    notebook: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("agg")
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    monkeypatch.chdir(tmp_path)
    module = ModuleType("__main__")  # as in a notebook, classes have no source file
    monkeypatch.setitem(sys.modules, "__main__", module)
    for number, code in enumerate(read_code(notebook), start=1):
        exec(compile(code, f"{notebook.stem}, cell {number}", "exec"), module.__dict__)
    assert capsys.readouterr().out
    assert not any(tmp_path.iterdir())


def test_there_are_five_notebooks_without_outputs() -> None:
    assert len(NOTEBOOKS) == 5
    for notebook in NOTEBOOKS:
        contents = json.loads(notebook.read_text(encoding="utf-8"))
        assert contents["nbformat"] == 4
        code = [cell for cell in contents["cells"] if cell["cell_type"] == "code"]
        assert [cell["outputs"] for cell in code] == [[]] * len(code)
        assert max(len(line) for cell in read_code(notebook) for line in cell.splitlines()) <= 100
