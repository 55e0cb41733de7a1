"""`thalweg tune`: its output, and the command that it prints."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

SMALL = [
    word
    for each in ("capacity=16", "ticks=1", "world.num_clients=3", "world.availability=1")
    for word in ("--set", each)
]
TUNE = ["tune", "fedavg", "--on", "digits-partial", "--over", "local.lr=0.0001,0.1", *SMALL]
TUNE += ["--rounds", "2", "--seeds", "0,", "--workers", "1", "--out", "tuned"]


def test_printed_command_runs_the_best_configuration(thalweg: Any) -> None:
    done = thalweg(*TUNE)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    score = "score: validation accuracy on 0.5 of the test samples, never the test metric"
    assert score in lines
    assert "rung 1 of 2: 2 configurations, 1 round" in lines
    assert "rung 2 of 2: 1 configuration, 2 rounds" in lines
    (best,) = [line.removeprefix("best   ") for line in lines if line.startswith("best   ")]
    (command,) = [line.removeprefix("run    ") for line in lines if line.startswith("run    ")]
    assert best in command
    assert "| local.lr=" in Path("tuned/table.md").read_text()
    program, *words = shlex.split(command)
    assert program == "thalweg"
    ran = thalweg(*words, "--out", "best")
    assert ran.returncode == 0, ran.stderr
    assert f"{best.partition('=')[2]}" in Path("best/plan.toml").read_text()


def test_json_lines_and_a_second_call(thalweg: Any) -> None:
    first = thalweg(*TUNE, "--json")
    assert first.returncode == 0, first.stderr
    rows = [json.loads(line) for line in first.stdout.splitlines()]
    assert [row.get("rung") for row in rows] == [2, 1, None]
    assert rows[-1]["best"] == rows[0]["settings"]
    again = thalweg(*TUNE)
    assert "1 configuration, 2 rounds, 1 of 1 runs already done" in again.stdout
    assert rows[-1]["command"] in again.stdout


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ("local.lr", "expected part.field=value,value, such as local.lr=0.01,0.03"),
        ("local.lr=", "local.lr: expected at least one value, got none"),
        ("local.lr=0.1", "expected at least two configurations, got one"),
    ],
)
def test_invalid_option(thalweg: Any, over: str, message: str) -> None:
    done = thalweg("tune", "fedavg", "--on", "digits-partial", "--over", over)
    assert done.returncode == 2
    assert message in done.stderr
    assert not Path("runs").exists()
