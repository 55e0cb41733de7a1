"""The API reference can be built and shows formulas and type names."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import thalweg
from thalweg.core.config import load_object

pytest.importorskip("pdoc", reason="the reference is made by pdoc, of the dev extra")
ROOT = Path(__file__).parents[2]


def text_of(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text()))


def make(folder: Path, *modules: str) -> None:
    # In another process, because make_reference changes __all__ of packages.
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, 'docs'); import make_reference\n"
    )
    code += "make_reference.main(Path(sys.argv[1]), *sys.argv[2:])"
    paths = [str(Path(thalweg.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code, str(folder), *modules],
        cwd=ROOT,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def test_pages_contain_formulas_and_short_type_names(tmp_path: Path) -> None:
    make(tmp_path, "thalweg.memory")
    source = (tmp_path / "thalweg/memory.html").read_text()
    assert "with probability <math " in source
    page = text_of(tmp_path / "thalweg/memory.html")
    assert "with probability min(1,n/(t+1))" in page.replace("\N{FUNCTION APPLICATION}", "")
    assert "def keep(" in page
    assert "-> tuple[None, Ints]" in page
    shown = page.split("class Reservoir:")[1]  # the source code on the page contains the long names
    assert "numpy.ndarray[" not in shown


def test_formulas_become_mathml_that_needs_no_network() -> None:
    pytest.importorskip("latex2mathml")
    formulas = load_object(f"{ROOT}/docs/make_reference.py:Formulas")()
    source = (
        "Sum :math:`a\n    + b`.\n\n.. math::\n    x = y\n    + z, \\qquad\n\n    u_* = v\n\nText."
    )
    hidden = formulas.hide(source)
    assert hidden == "Sum formula0x.\n\nformula1x\n\nformula2x\n\nText."
    shown = formulas.show(hidden)
    assert shown.count("<math ") == shown.count("</math>") == 3
    assert re.findall(r'display="(\w+)"', shown) == ["inline", "block", "block"]
    norm = formulas.show(formulas.hide(r":math:`\arg\min_a \Big\| a \Big\rVert^2`"))
    assert "\\" not in norm, "TeX that was not converted"
    assert norm.count("‖") == 2
    assert "<mi>a</mi><mo>&#x0002B;</mo><mi>b</mi>" in shown, "formulas on two lines are joined"


@pytest.mark.slow
def test_each_public_package_has_a_page_without_markup_errors(tmp_path: Path) -> None:
    make(tmp_path)
    pages = {str(page.relative_to(tmp_path)) for page in tmp_path.rglob("*.html")}
    packages = {path.parent.name for path in (ROOT / "src/thalweg").glob("*/__init__.py")}
    assert {f"thalweg/{name}.html" for name in packages - {"cli"}} <= pages
    assert 'id="run"' in (tmp_path / "thalweg.html").read_text()
    for page in tmp_path.rglob("*.html"):
        assert "<script src=" not in page.read_text(), "no script from a network"
        assert not re.search(r"formula\d+x", page.read_text())
        for docstring in re.findall(r'<div class="docstring">(.*?)</div>', page.read_text(), re.S):
            assert ":math:" not in docstring
            assert ".. math::" not in docstring
            for formula in re.findall(r"<math .*?</math>", docstring, re.S):
                assert "\\" not in formula, "TeX that was not converted"
