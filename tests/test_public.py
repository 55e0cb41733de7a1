"""What can be imported is short and true."""

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

# Running this one is what it is for.
NOT_IMPORTED = {"thalweg.__main__"}


def modules() -> list[ModuleType]:
    """Every module of the package, imported."""
    found = pkgutil.walk_packages(thalweg.__path__, "thalweg.")
    names = [info.name for info in found if info.name not in NOT_IMPORTED]
    return [thalweg, *(importlib.import_module(name) for name in names)]


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    environment = {**os.environ, "PYTHONPATH": str(Path(thalweg.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_every_promised_name_is_there() -> None:
    untrue = [
        f"{module.__name__}.{name}"
        for module in modules()
        for name in getattr(module, "__all__", [])
        if not hasattr(module, name)
    ]
    assert untrue == []


def test_no_name_is_promised_twice() -> None:
    for module in modules():
        promised = getattr(module, "__all__", [])
        assert len(set(promised)) == len(promised), module.__name__


def test_every_module_that_offers_something_says_what_it_is() -> None:
    silent = [
        module.__name__
        for module in modules()
        if hasattr(module, "__path__") and not (module.__doc__ or "").strip()
    ]
    assert silent == []


HEAVY = ("torch", "sklearn", "scipy", "matplotlib", "pyarrow", "PIL")  # seconds, all of them
LISTED = f"[name for name in {HEAVY} if name in sys.modules]"


@pytest.mark.parametrize(
    "name", ["thalweg.engine.loop", "thalweg.report", "thalweg.cli.reproduce", "thalweg.cli.main"]
)
def test_nothing_heavy_is_imported_before_something_is_to_be_computed(name: str) -> None:
    # Whoever asks for help, or mistypes a name, should not wait for it.
    assert python(f"import sys, {name}; print({LISTED})") == "[]"


def test_a_plan_is_made_without_anything_heavy() -> None:
    plan = "make_plan('sfedpo+dpcs', 'digits-partial', overrides=['memory.budget=0.3'])"
    code = f"import sys; from thalweg.engine.plan import make_plan; {plan}; print({LISTED})"
    assert python(code) == "[]"


def test_a_run_waits_for_torch_alone() -> None:
    run = "thalweg.run('sfedpo', 'digits-partial', rounds=1, workers=1)"
    assert python(f"import sys, thalweg; {run}; print({LISTED})") == "['torch']"


def test_what_runs_things_is_found_when_asked_for() -> None:
    assert callable(thalweg.run)
    assert callable(thalweg.compare)
    assert thalweg.Result.__name__ == "Result"


def test_subpackages_are_imported_on_first_use() -> None:
    names = ["memory", "recipes", "local", "selection", "aggregation", "streams", "forecast"]
    code = f"import thalweg; print([getattr(thalweg, name).__name__ for name in {names}])"
    assert python(code) == str([f"thalweg.{name}" for name in names])
    assert python("import sys, thalweg; print('thalweg.memory' in sys.modules)") == "False"
    assert "memory" in dir(thalweg)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'runn'"):
        thalweg.runn  # noqa: B018
