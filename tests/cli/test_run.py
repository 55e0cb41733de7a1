import io
from pathlib import Path

import pytest
from rich.console import Console

from thalweg.cli.run import print_summary

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
    ("more", "is_said"),
    [({"balanced_accuracy": 0.5}, True), ({"balanced_accuracy": 0.7475}, False), ({}, False)],
)
def test_balanced_accuracy_is_said_where_it_differs(more: dict[str, float], is_said: bool) -> None:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    row = {**ROW, **more}
    print_summary(console, [row], None, Path("out"), "thalweg run")
    assert ("balanced        0.5000" in console.file.getvalue()) is is_said


def test_in_a_session_the_accuracy_on_its_members_labels_comes_first() -> None:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    row = {**ROW, "session_accuracy": 0.9}
    print_summary(console, [row], None, Path("out"), "thalweg run")
    said = console.file.getvalue()
    assert "session         0.9000   on the labels that its members have\naccuracy" in said
