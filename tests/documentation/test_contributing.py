"""The code on CONTRIBUTING.md runs as it is written."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import thalweg
from contracts.bank import check_bank
from contracts.memory import check_memory_policy
from contracts.objective import check_objective
from contracts.sample_weights import check_sample_weights
from contracts.selection import check_selection
from contracts.session_start import check_session_start
from documentation.pages import ROOT, blocks, commands
from thalweg.cli.main import app
from thalweg.core.config import load_object

PAGE = ROOT / "CONTRIBUTING.md"
SMALL = ["capacity=24", "local.passes=1", "ticks=3", "world.num_clients=8", "evaluate_every=1"]
CONTRACTS: dict[str, Callable[[Any], None]] = {
    "memory": check_memory_policy,
    "objective": check_objective,
    "bank": check_bank,
    "session_start": check_session_start,
    "selection": check_selection,
    "sample_weights": check_sample_weights,
}
STAGES = {
    "NewestPerClass": "memory",
    "LargestError": "memory",
    "Anchored": "objective",
    "RareClasses": "memory",
    "EvenOdd": "bank",
    "Halfway": "session_start",
    "LargestMemory": "selection",
    "RareFirst": "sample_weights",
}


def policy_in(block: str) -> str:
    """Return the name of the last class of a block: the policy."""
    return [node.name for node in ast.parse(block).body if isinstance(node, ast.ClassDef)][-1]


BLOCKS = {policy_in(block): block for block in blocks(PAGE, "python")}

each_policy = pytest.mark.parametrize("name", BLOCKS)


@pytest.fixture
def kind(name: str, tmp_path: Path) -> str:
    """Write the block to a file and return ``path:Class``."""
    file = tmp_path / "mine.py"
    file.write_text(BLOCKS[name])
    return f"{file}:{name}"


NEEDED = {"session_start": ["session_trigger=presence"]}  # else there are no sessions


def test_each_block_has_a_stage() -> None:
    assert BLOCKS.keys() == STAGES.keys()


@each_policy
def test_policy_on_the_page_satisfies_the_contract_of_its_stage(name: str, kind: str) -> None:
    CONTRACTS[STAGES[name]](load_object(kind)())


@each_policy
def test_policy_on_the_page_runs_on_both_engines(name: str, kind: str) -> None:
    fast, slow = (
        thalweg.run(
            "fedavg",
            "digits-full",
            seed=1,
            rounds=2,
            engine=engine,
            overrides=[*SMALL, f"{STAGES[name]}={kind}", *NEEDED.get(STAGES[name], [])],
        )
        for engine in ("fast", "reference")
    )
    np.testing.assert_allclose(fast.model, slow.model, rtol=2e-3, atol=2e-5)
    assert [row["cohort"] for row in fast.metrics] == [row["cohort"] for row in slow.metrics]


def test_command_for_the_first_policy_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (command,) = [line for line in commands(PAGE) if "newest_per_class.py" in line]
    file = Path("src/thalweg/memory/newest_per_class.py")
    file.parent.mkdir(parents=True)
    file.write_text(BLOCKS["NewestPerClass"])
    small = [word for change in SMALL for word in ("--set", change)]
    words = [*shlex.split(command)[1:], *small, "--rounds", "1", "--seeds", "1", "--workers", "1"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    table = Path("runs/compare-digits-partial/table.csv").read_text()
    assert "newest_per_class.py:NewestPerClass" in table
