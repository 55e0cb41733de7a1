"""The output that the README shows is the output of its commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from documentation.pages import ROOT, SHELL, blocks
from thalweg.cli.main import app

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
    done = runner.invoke(app, shlex.split(command)[1:], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    printed = iter(map(comparable, done.output.splitlines()))
    for line in shown:
        if line == "...":
            continue
        words, numbers = comparable(line)
        close = pytest.approx(numbers, abs=tolerance)
        is_printed = any(text == words and theirs == close for text, theirs in printed)
        assert is_printed, f"not printed, or in another order: {line}\n{done.output}"


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
