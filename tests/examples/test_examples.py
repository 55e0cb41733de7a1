"""The examples print what they promise, and their commands run the same plans."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from contracts.memory import check_memory_policy
from contracts.objective import check_objective
from contracts.sample_weights import check_sample_weights
from contracts.selection import check_selection
from contracts.server_rule import check_server_rule
from thalweg.cli.main import app
from thalweg.core.config import load_object
from thalweg.engine.loop import Progress, run_plan
from thalweg.engine.plan import Plan, plan_to_toml, read_plan

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))  # other files are used by pages
MOST_LINES = 30
CONTRACTS: dict[str, Callable[[Any], None]] = {
    "memory": check_memory_policy,
    "selection": check_selection,
    "objective": check_objective,
    "server": check_server_rule,
    "sample_weights": check_sample_weights,
}
# Smaller problems than those of the examples; accuracy is not tested here.
SMALL = {
    "digits-full": ["capacity=24", "local.passes=1", "ticks=3", "world.num_clients=8"],
    "digits-partial": ["capacity=24", "local.passes=1", "ticks=3", "world.num_clients=8"],
    "sensors.csv": ["capacity=24", "world.availability=1"],
}

each_example = pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)


def code_lines(source: str) -> int:
    """Count the lines that are not blank, a comment or a docstring."""
    tree = ast.parse(source)
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                docstrings |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = enumerate(source.splitlines(), start=1)
    return sum(
        number not in docstrings and bool(line.strip()) and not line.strip().startswith("#")
        for number, line in lines
    )


def doc_of(file: Path) -> str:
    return ast.get_docstring(ast.parse(file.read_text())) or ""


def command_of(file: Path) -> list[str]:
    """Return the arguments of the `thalweg` command in an example's docstring."""
    lines = doc_of(file).replace("\\\n", " ").splitlines()
    (line,) = [line for line in lines if line.strip().startswith("thalweg ")]
    return shlex.split(line)[1:]


def own_policies(file: Path) -> dict[str, str]:
    """Return stage and ``path:Class`` of the policies in an example's command."""
    words = [word for word in command_of(file) if f"={file.relative_to(ROOT)}:" in word]
    return dict(word.split("=", 1) for word in words)


def thalweg(*words: str) -> None:
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output


def run_small(file: Path, out: Path, engine: str) -> None:
    """Run the example's command on a smaller problem."""
    words = command_of(file)
    changes = [word for change in SMALL[words[3]] for word in ("--set", change)]
    thalweg(*words, *changes, "--rounds", "3", "--engine", engine, "--out", str(out))


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if "seconds" not in name} for row in rows]


class Enough(Exception):
    """Raised to interrupt a run."""


def stop_after_two(progress: Progress) -> None:
    if progress.rounds_done == 2:
        raise Enough


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Change to a folder with examples/ and the table of example 6."""
    (tmp_path / "examples").symlink_to(ROOT / "examples", target_is_directory=True)
    load_object(f"{ROOT}/examples/06_own_data.py:write_table")(tmp_path / "sensors.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_examples_are_numbered_and_listed() -> None:
    numbers = [int(file.name[:2]) for file in EXAMPLES]
    assert numbers == list(range(1, len(EXAMPLES) + 1))
    listed = (ROOT / "examples/README.md").read_text()
    assert [file.name for file in EXAMPLES if f"]({file.name})" not in listed] == []


@each_example
def test_example_is_short(file: Path) -> None:
    assert code_lines(file.read_text()) <= MOST_LINES


def test_code_lines_ignores_comments_and_docstrings() -> None:
    assert code_lines('"""Title.\n\nMore.\n"""\n\nimport x  # why\n\n# note\ny = """a\nb"""\n') == 3


@each_example
def test_example_uses_only_public_names(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert not node.module.startswith(("thalweg.engine", "thalweg.cli"))
            assert not any(alias.name.startswith("_") for alias in node.names)
        if isinstance(node, ast.Attribute):
            assert not node.attr.startswith("_")


@each_example
def test_example_defines_at_most_one_policy_and_its_command_names_it(file: Path) -> None:
    classes = [n.name for n in ast.parse(file.read_text()).body if isinstance(n, ast.ClassDef)]
    named = [kind.rpartition(":")[2] for kind in own_policies(file).values()]
    assert named == classes
    assert len(classes) <= 1


def split_numbers(text: str) -> tuple[str, list[float]]:
    """Return the text with a placeholder for each number, and the numbers."""
    pattern = r"(?<![\w.])\d+(?:\.\d+)?"
    return re.sub(pattern, "#", text), [float(number) for number in re.findall(pattern, text)]


class Planned(Exception):
    """Raised instead of running a plan."""


@each_example
def test_example_prints_what_its_docstring_shows_and_its_command_makes_the_same_plan(
    file: Path, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Plan] = []

    def record(plan: Plan, **options: Any) -> Any:
        plans.append(plan)
        return run_plan(plan, **options)

    def record_and_stop(plan: Plan, **_: Any) -> NoReturn:
        plans.append(plan)
        raise Planned

    monkeypatch.setattr("thalweg.engine.loop.run_plan", record)
    main = load_object(f"{file.relative_to(ROOT)}:main")
    main(*([Path("sensors.csv")] if file.stem == "06_own_data" else []))
    printed = [split_numbers(line) for line in capsys.readouterr().out.splitlines()]
    promised = [split_numbers(line.strip()) for line in doc_of(file).splitlines()]
    shown = [line for line in promised if line[0] in {text for text, _ in printed}]
    assert [text for text, _ in shown] == [text for text, _ in printed]
    for (_, ours), (_, theirs) in zip(printed, shown, strict=True):
        assert ours == pytest.approx(theirs, abs=0.03)

    from_script = plans[-1]
    monkeypatch.setattr("thalweg.cli.run.run_any_plan", record_and_stop)
    with pytest.raises(Planned):
        CliRunner().invoke(app, command_of(file), catch_exceptions=False)
    assert plan_to_toml(plans[-1]) == plan_to_toml(from_script)


@each_example
def test_policy_of_an_example_satisfies_the_contract_of_its_stage(file: Path) -> None:
    for stage, kind in own_policies(file).items():
        CONTRACTS[stage](load_object(str(ROOT / kind))())


@each_example
def test_both_engines_run_the_command_of_an_example(file: Path, place: Path) -> None:
    run_small(file, place / "fast", "fast")
    run_small(file, place / "slow", "reference")
    fast, slow = (load_file(place / name / "model.safetensors") for name in ("fast", "slow"))
    for name in slow:
        np.testing.assert_allclose(fast[name], slow[name], rtol=2e-3, atol=2e-5)
    for ours, theirs in zip(rows_of(place / "fast"), rows_of(place / "slow"), strict=True):
        assert ours["cohort"] == theirs["cohort"]


@each_example
def test_interrupted_example_resumes_to_the_same_model_and_metrics(file: Path, place: Path) -> None:
    run_small(file, place / "whole", "fast")
    with pytest.raises(Enough):
        run_plan(read_plan(place / "whole"), out=place / "cut", watch=stop_after_two)
    assert len(rows_of(place / "cut")) == 2
    thalweg("run", "cut", "--resume")
    whole, cut = ((place / name / "model.safetensors").read_bytes() for name in ("whole", "cut"))
    assert cut == whole
    assert rows_of(place / "cut") == rows_of(place / "whole")


def test_command_line_resumes_the_run_of_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = (ROOT / "examples/02_own_memory.py").read_text()
    script = source.replace("seed=7, rounds=5)", 'seed=7, rounds=2, out="r", resume=True)')
    script = script.replace("in (fedavg(), replace(fedavg(), memory=Cooling())):", "in [own]:")
    script = script.replace(
        "def main() ->", "own = replace(fedavg(), memory=Cooling())\n\n\ndef main() ->"
    )
    assert "resume=True" in script
    assert "[own]" in script
    Path("mine.py").write_text(script)
    for _ in range(2):  # the second time there is nothing left to do
        subprocess.run([sys.executable, "mine.py"], check=True)
    assert read_plan(Path("r")).recipe.memory == load_object("mine.py:Cooling")()
    thalweg("run", "r", "--resume")
