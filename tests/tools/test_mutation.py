"""The mutation tester generates valid mutants and skips what no test should notice."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[2] / "tools" / "mutation.py"


@pytest.fixture(scope="module")
def mutation() -> Any:
    spec = importlib.util.spec_from_file_location("mutation", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutation"] = module
    spec.loader.exec_module(module)
    return module


def test_mutants_change_one_expression_and_still_parse(mutation: Any) -> None:
    source = "def f(x, y):\n    if x < y and not x:\n        return -x\n    return x * y\n"
    mutants = list(mutation.find_mutants(source))
    changes = {(mutant.before, mutant.after) for mutant in mutants}
    assert {("x < y", "x <= y"), ("not x", "x"), ("-x", "x"), ("x * y", "x / y")} <= changes
    assert ("x < y and (not x)", "x < y or not x") in changes
    for mutant in mutants:
        assert ast.dump(ast.parse(mutant.source)) != ast.dump(ast.parse(source))


def test_messages_and_annotations_are_not_mutated(mutation: Any) -> None:
    source = 'def f(x: int | None = None) -> int | str:\n    raise ValueError(f"got {1 + 1}")\n'
    assert list(mutation.find_mutants(source)) == []


def test_every_target_and_its_tests_exist(mutation: Any) -> None:
    for module, tests in mutation.TARGETS.items():
        assert (mutation.ROOT / mutation.PACKAGE / module).is_file()
        for path in tests:
            assert (mutation.ROOT / path).exists()
