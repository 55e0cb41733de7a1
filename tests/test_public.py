"""Public names can be imported, and importing the package is fast."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import thalweg
from thalweg.native.library import get_kernel_name

# Importing this module runs the CLI.
NOT_IMPORTED = {"thalweg.__main__"}


def modules() -> list[ModuleType]:
    """Import and return all modules of the package."""
    found = pkgutil.walk_packages(thalweg.__path__, "thalweg.")
    names = [info.name for info in found if info.name not in NOT_IMPORTED]
    return [thalweg, *(importlib.import_module(name) for name in names)]


def python(code: str) -> str:
    """Run code in a new interpreter and return its output."""
    environment = {**os.environ, "PYTHONPATH": str(Path(thalweg.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_names_in_all_are_defined() -> None:
    undefined = [
        f"{module.__name__}.{name}"
        for module in modules()
        for name in getattr(module, "__all__", [])
        if not hasattr(module, name)
    ]
    assert undefined == []


def test_names_in_all_are_unique() -> None:
    for module in modules():
        exported = getattr(module, "__all__", [])
        assert len(set(exported)) == len(exported), module.__name__


def test_packages_have_docstrings() -> None:
    undocumented = [
        module.__name__
        for module in modules()
        if hasattr(module, "__path__") and not (module.__doc__ or "").strip()
    ]
    assert undocumented == []


HEAVY = ("torch", "sklearn", "scipy", "matplotlib", "pyarrow", "PIL")  # each takes long to import
LISTED = f"[name for name in {HEAVY} if name in sys.modules]"


@pytest.mark.parametrize(
    "name", ["thalweg.engine.loop", "thalweg.report", "thalweg.cli.reproduce", "thalweg.cli.main"]
)
def test_imports_do_not_load_slow_libraries(name: str) -> None:
    # --help and messages about mistyped names should appear at once.
    assert python(f"import sys, {name}; print({LISTED})") == "[]"


def test_make_plan_does_not_load_slow_libraries() -> None:
    plan = "make_plan('sfedpo+dpcs', 'digits-partial', overrides=['memory.budget=0.3'])"
    code = f"import sys; from thalweg.engine.plan import make_plan; {plan}; print({LISTED})"
    assert python(code) == "[]"


@pytest.mark.parametrize("engine", ["fast", "torch"])
def test_run_loads_torch_only_if_it_needs_it(engine: str) -> None:
    run = f"thalweg.run('sfedpo', 'digits-partial', rounds=1, workers=1, engine='{engine}')"
    needs_torch = engine == "torch" or get_kernel_name() == "torch"
    expected = "['torch']" if needs_torch else "[]"
    assert python(f"import sys, thalweg; {run}; print({LISTED})") == expected


def test_lazily_imported_functions_are_available() -> None:
    assert callable(thalweg.run)
    assert callable(thalweg.compare)
    assert thalweg.Result.__name__ == "Result"


def test_subpackages_are_imported_on_first_use() -> None:
    names = ["memory", "recipes", "local", "selection", "aggregation", "streams", "forecast"]
    code = f"import thalweg; print([getattr(thalweg, name).__name__ for name in {names}])"
    assert python(code) == str([f"thalweg.{name}" for name in names])
    assert python("import sys, thalweg; print('thalweg.memory' in sys.modules)") == "False"
    assert "memory" in dir(thalweg)


def test_unknown_name_raises_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'runn'"):
        thalweg.runn  # noqa: B018
