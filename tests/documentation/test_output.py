"""The output that pages show is the output of their commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import thalweg
from documentation.pages import ROOT, SHELL, blocks
from thalweg.cli.init import write_example
from thalweg.cli.main import app
from thalweg.core.errors import ThalwegError
from thalweg.core.wrapped_text import wrap_message

NUMBER = re.compile(r"(?<![\w.])[-−]?\d+(?:\.\d+)?")
# Times differ between machines.
TIMES = re.compile(r"\d+(\.\d+)? rounds/s|\d+ s/round|\d+:\d\d| +\d+\.\d ± \d+\.\d$")


def comparable(line: str) -> tuple[str, list[float]]:
    """Split a line into its words and its numbers, without times."""
    line = TIMES.sub("", line.rstrip()).replace("−", "-")
    words = " ".join(re.sub("─+", "─", NUMBER.sub("#", line)).split())
    return words, [float(number) for number in NUMBER.findall(line)]


def block_with(text: str) -> list[str]:
    (block,) = [each for each in blocks(ROOT / "README.md", *SHELL) if text in each]
    return block.splitlines()


def check_output(shown: list[str], command: str, columns: int, tolerance: float) -> None:
    """Check that the lines of a block are in the output, in order; "..." means any lines."""
    runner = CliRunner(env={"COLUMNS": str(columns)})
    try:
        done = runner.invoke(app, shlex.split(command)[1:], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        output = done.output
    except ThalwegError as error:  # as in `cli.main.main`
        output = wrap_message(f"thalweg: {error}", columns)
    printed = iter(map(comparable, output.splitlines()))
    for line in shown:
        if line == "...":
            continue
        words, numbers = comparable(line)
        close = pytest.approx(numbers, abs=tolerance)
        is_printed = any(text == words and theirs == close for text, theirs in printed)
        assert is_printed, f"not printed, or in another order: {line}\n{output}"


def test_readme_shows_the_output_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command, *shown = block_with("$ thalweg run sfedpo")
    check_output(shown, command.removeprefix("$ "), columns=80, tolerance=0.01)


@pytest.mark.slow
def test_readme_shows_the_output_of_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    makefile = (ROOT / "Makefile").read_text()
    (command,) = re.findall(r"^demo:.*\n\t\$\(BIN\)/(.*)$", makefile, re.MULTILINE)
    shown = block_with("page   runs/demo/index.html")
    check_output(shown, command.replace("$(RUNS)", "runs/demo"), columns=80, tolerance=0.5)


@pytest.mark.slow
def test_difference_of_the_demo_holds_on_fresh_seeds() -> None:
    recipes = ["feddrift", "fedavg", "auto"]
    compared = thalweg.compare(recipes, "mixed-digits", seeds=range(20, 25))
    difference = compared.tests()["auto"]
    assert difference.mean > 0.1
    assert difference.p_value is not None
    assert difference.p_value < 0.01


def test_speedups_in_the_readme_are_the_ranges_of_the_speed_page() -> None:
    page = (ROOT / "docs/results/speed.md").read_text()
    rows = [line.split("|")[1:-1] for line in page.splitlines() if re.match(r"\| [A-D]  ", line)]
    ratios = {row[0].split()[0]: [*map(float, NUMBER.findall(row[3] + row[4]))] for row in rows}
    readme = " ".join((ROOT / "README.md").read_text().split())
    names = {"A": "LeNet-5", "B": "an MLP", "C": "logistic regression", "D": "a small CNN"}
    assert ratios.keys() == names.keys()
    for workload, name in names.items():
        assert f"{min(ratios[workload])} to {max(ratios[workload])} for {name}" in readme


TABLE_PAGE = ROOT / "docs/your-own-table.md"


@pytest.fixture
def pumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project of the page about tables, with the files that its shell commands write."""
    write_example(tmp_path / "pumps")
    monkeypatch.chdir(tmp_path / "pumps")
    lines = Path("pumps.csv").read_text().splitlines(keepends=True)
    clean = list(dict.fromkeys(lines))  # awk '!seen[$0]++'
    Path("clean.csv").write_text("".join(clean))
    Path("new.csv").write_text("".join(clean[:4]))  # head -4
    return tmp_path / "pumps"


def transcripts(page: Path) -> list[list[str]]:
    """Return the blocks of a command and its output."""
    found = [block.splitlines() for block in blocks(page, "text", *SHELL)]
    return [lines for lines in found if lines[0].startswith("$ thalweg")]


def test_page_about_tables_shows_its_files_and_the_output_of_its_commands(pumps: Path) -> None:
    quick = [lines for lines in transcripts(TABLE_PAGE) if "compare" not in lines[0]]
    assert len(quick) == 4
    for command, *shown in quick:
        check_output(shown, command.removeprefix("$ "), columns=80, tolerance=0.01)
    head, predicted = (block for block in blocks(TABLE_PAGE, "text") if not block.startswith("$"))
    assert Path("pumps.csv").read_text().startswith(head)
    assert Path("predicted.csv").read_text() == predicted
