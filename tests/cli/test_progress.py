"""Progress lines in a log file."""

import io
from typing import Any

import pytest
from rich.console import Console

from thalweg.cli.progress import show_progress
from thalweg.engine.loop import Progress
from thalweg.engine.plan import make_plan

PLAN = make_plan("fedavg", "digits-full", seed=0, rounds=4)


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ({"accuracy": 0.5}, "round 2/4  3 clients  accuracy 0.5000  2.0 rounds/s  0:01 left\n"),
        (
            {"accuracy": 0.5, "session": 1, "session_accuracy": 0.9},
            "round 2/4  session 1  3 clients  accuracy 0.9000  2.0 rounds/s  0:01 left\n",
        ),
        ({}, ""),
        (
            {"prequential_accuracy": 0.75},
            "round 2/4  3 clients  test-then-train 0.7500  2.0 rounds/s  0:01 left\n",
        ),
    ],
    ids=[
        "evaluated",
        "in a session, on its members' labels",
        "not evaluated",
        "nothing to evaluate on",
    ],
)
def test_log_has_one_line_per_evaluation(
    row: dict[str, Any], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with show_progress(PLAN, Console(file=io.StringIO()), as_json=False) as watch:
        watch(Progress(PLAN, {"cohort": 3, "seconds": 0.5, **row}, 2))
    assert capsys.readouterr().out == line


def test_time_left_does_not_follow_single_slow_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress(PLAN, Console(file=io.StringIO()), as_json=False) as watch:
        for done, seconds in ((1, 90.0), (2, 2.0), (3, 2.0)):
            row = {"cohort": 3, "accuracy": 0.5, "seconds": seconds}
            watch(Progress(PLAN, row, done))
    assert capsys.readouterr().out.splitlines()[-1].endswith("2 s/round  0:02 left")


@pytest.mark.parametrize(
    ("headline", "shown"),
    [
        ("prequential_accuracy", "test-then-train 0.7500"),
        ("accuracy", "accuracy 0.5000"),
        ("f1", "f1 0.2500"),
    ],
)
def test_progress_shows_the_headline_of_the_scenario(
    headline: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = make_plan("fedavg", "digits-full", rounds=4, headline=headline)
    row = {"accuracy": 0.5, "prequential_accuracy": 0.75, "f1": 0.25}
    is_time_ordered = headline == "accuracy"  # the headline of the scenario comes first
    with show_progress(plan, Console(file=io.StringIO()), False, is_time_ordered) as watch:
        watch(Progress(plan, {"cohort": 3, "seconds": 0.5, **row}, 2))
    assert f"  {shown}  " in capsys.readouterr().out


def test_time_ordered_data_show_test_then_train(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"cohort": 3, "seconds": 0.5, "accuracy": 0.5, "prequential_accuracy": 0.75}
    with show_progress(PLAN, Console(file=io.StringIO()), False, is_time_ordered=True) as watch:
        watch(Progress(PLAN, row, 2))
    assert "test-then-train 0.7500" in capsys.readouterr().out
