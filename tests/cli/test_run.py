"""The summary that `thalweg run` prints."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from thalweg.cli import main
from thalweg.cli.run import plan_from_options, print_summary
from thalweg.data import Digits, Table, table
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


def write_rows(folder: Path) -> Path:
    file = folder / "rows.csv"
    file.write_text("x,kind\n" + "".join(f"{n * 7 % 40},{'ab'[n % 2]}\n" for n in range(40)))
    return file


def test_user_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the plan, the plan without overrides, the printed tree and the run."""
    read: list[Path] = []

    def count(file: Path) -> object:
        read.append(file)
        return read_table(file)

    read_table = table.read_table
    monkeypatch.setattr(table, "read_table", count)
    monkeypatch.chdir(tmp_path)
    file = write_rows(tmp_path)
    sets = ["--set", "data.label=kind", "--set", "data.test_fraction=0.5", "--set", "capacity=9"]
    words = ["run", "fedavg", "--on", str(file), *sets, "--rounds", "1", "--workers", "1"]
    main.app(words, standalone_mode=False)
    assert read == [file]


def test_plan_without_overrides_reads_the_columns_of_the_plan(tmp_path: Path) -> None:
    file = write_rows(tmp_path)
    options = {"seed": None, "rounds": None}
    sets = ["data.label=kind", "capacity=9"]
    plan, default, _ = plan_from_options("fedavg", str(file), sets, **options)
    assert default is not None
    assert plan.scenario.data == default.scenario.data == Table(str(file), label="kind")
    assert (plan.scenario.capacity, default.scenario.capacity) == (9, 256)
    # A scenario and a file of the user can replace each other.
    sets = ["data=table", f"data.path={file}", "data.label=kind", "net=mlp"]
    _, default, _ = plan_from_options("fedavg", "digits-partial", sets, **options)
    assert default is not None
    assert default.scenario.data == Digits()
    plan, default, _ = plan_from_options("fedavg", str(file), ["data=digits"], **options)
    assert default is not None
    assert plan.scenario.data == default.scenario.data == Digits()
