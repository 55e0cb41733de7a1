"""The summary that `thalweg run` prints."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from thalweg.cli import main
from thalweg.cli.run import plan_from_options, print_summary, simple_lines
from thalweg.core.errors import ConfigError
from thalweg.core.metrics import METRICS
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


@pytest.mark.parametrize(
    ("sets", "shown"),
    [
        (["net=mlp"], r"net \(--model\)"),
        (["loss=mae", "local.optimizer=adam"], r"loss \(--loss\), local \(--optimizer\)"),
        (['metrics=["mae"]'], r"metrics \(--metric\)"),
        (["evaluate_every=1"], "evaluate_every"),
    ],
)
def test_settings_without_effect_on_a_baseline_are_rejected(sets: list[str], shown: str) -> None:
    message = f"no effect on majority: {shown}\\..*thalweg compare fedavg majority"
    with pytest.raises(ConfigError, match=message):
        plan_from_options("majority", "gaussian-mixture", sets, None, None)
    used = ["pooled=true", "prequential=4", "capacity=9"]
    plan, _, _ = plan_from_options("majority", "gaussian-mixture", used, None, None)
    assert plan.scenario.prequential == 4


def test_session_accuracy_is_printed_before_accuracy() -> None:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    row = {**ROW, "session_accuracy": 0.9}
    print_summary(console, PLAN, [row], None, Path("out"), "thalweg run")
    output = console.file.getvalue()
    assert (
        "session         0.9000   accuracy on the labels of the session's members\naccuracy"
        in output
    )


@pytest.mark.parametrize("world", ["at_end=stop", "at_end=restart", ""])
def test_the_note_on_arriving_rows_depends_on_the_world(world: str) -> None:
    sets = ["world=replay", f"world.{world}"] if world else []
    plan = make_plan("fedavg", "digits-partial", rounds=1, overrides=sets)
    console = Console(file=io.StringIO(), width=80)
    row = {**ROW, "prequential_accuracy": 0.75}
    print_summary(console, plan, [row], None, Path("out"), "thalweg run")
    note = "before training on them" if world == "at_end=stop" else "some were seen before"
    assert note in console.file.getvalue()


SCORES = {"majority": {"prequential_accuracy": 0.5}, "no-change": {"prequential_accuracy": 0.625}}


@pytest.mark.parametrize(("accuracy", "is_better"), [(0.75, True), (0.625, False)])
def test_headline_is_compared_with_predictions_without_features(
    accuracy: float, is_better: bool
) -> None:
    rows = [{"prequential_accuracy": accuracy, "tested": 8}]
    first, second, *rest = simple_lines(rows, METRICS["prequential_accuracy"], SCORES)
    words = f"test-then-train accuracy {accuracy:.4f}; predicting the majority class gives 0.5000"
    assert first == words
    assert second == "repeating the last label gives 0.6250"
    assert all(len(line) <= 80 for line in (first, second, *rest))
    assert len(rest) == (0 if is_better else 1)


def test_lower_errors_are_better_than_the_mean() -> None:
    metric = METRICS["prequential_mae"]
    scores = {"mean": {"prequential_mae": 2.0}}
    assert len(simple_lines([{"prequential_mae": 1.0}], metric, scores)) == 1
    assert simple_lines([{"prequential_mae": 3.0}], metric, scores)[1].startswith(
        "The model is not"
    )
    assert simple_lines([{"mae": 1.0}], METRICS["mae"], scores) == [], "another metric"


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
