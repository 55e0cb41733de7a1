"""The summary that `thalweg run` prints."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from thalweg.cli.run import print_summary
from thalweg.engine.plan import make_plan

PLAN = make_plan("fedavg", "digits-partial")

ROW = {
    "round": 1,
    "seconds": 1.0,
    "bytes_up": 0,
    "bytes_down": 0,
    "accuracy": 0.75,
    "test_loss": 1.0,
    "state_accuracy": 0.7,
    "worst_state_accuracy": 0.1,
}


@pytest.mark.parametrize(
    ("more", "is_printed"),
    [({"balanced_accuracy": 0.5}, True), ({"balanced_accuracy": 0.7475}, False), ({}, False)],
)
def test_balanced_accuracy_is_printed_if_it_differs_from_accuracy(
    more: dict[str, float], is_printed: bool
) -> None:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    row = {**ROW, **more}
    print_summary(console, PLAN, [row], None, Path("out"), "thalweg run")
    assert ("balanced        0.5000" in console.file.getvalue()) is is_printed


def test_session_accuracy_is_printed_before_accuracy() -> None:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    row = {**ROW, "session_accuracy": 0.9}
    print_summary(console, PLAN, [row], None, Path("out"), "thalweg run")
    output = console.file.getvalue()
    assert (
        "session         0.9000   accuracy on the labels of the session's members\naccuracy"
        in output
    )


def test_test_then_train_is_printed_first_on_time_ordered_data() -> None:
    row = {**ROW, "accuracy": 0.5, "prequential_accuracy": 0.75}
    for in_time, expected in ((True, ["prequential", "accuracy"]), (False, ["accuracy"])):
        console = Console(file=io.StringIO(), width=80)
        print_summary(console, PLAN, [row], None, Path("out"), "thalweg run", in_time)
        lines = console.file.getvalue().splitlines()[1:]
        assert [line.split()[0] for line in lines][: len(expected)] == expected
        assert all(len(line) <= 80 for line in lines)
