"""The plan that `thalweg run` prints."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from thalweg.cli.data_view import describe_data
from thalweg.cli.plan_view import describe_local, plan_tree
from thalweg.data import Dataset
from thalweg.engine.plan import Plan, make_plan


def render_plan(*overrides: str) -> str:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    before = make_plan("fedavg", "digits-full")
    console.print(plan_tree(make_plan("fedavg", "digits-full", overrides=overrides), before))
    return console.file.getvalue()


def test_sessions_are_shown_only_if_there_are_any() -> None:
    assert "sessions" not in render_plan()
    overrides = ("sessions=alternating", "sessions.length=5")
    line = next(line for line in render_plan(*overrides).splitlines() if "sessions" in line)
    assert "alternating(length=5)" in line
    assert "<- was none" in line


def test_augmentation_is_shown_only_if_it_is_used() -> None:
    assert "augment" not in render_plan()
    line = next(
        line
        for line in render_plan("augment=standard", "augment.padding=2").splitlines()
        if "augment" in line
    )
    assert "standard(padding=2)" in line
    assert "<- was none" in line


def test_faults_and_staleness_are_shown_only_if_they_are_not_the_default() -> None:
    assert "faults" not in render_plan()
    assert "staleness" not in render_plan()
    text = render_plan("faults=unreliable", "faults.lost=0.3", "staleness=polynomial")
    (faults,) = [line for line in text.splitlines() if "faults" in line]
    assert "unreliable(lost=0.3)" in faults
    assert "<- was none" in faults
    (staleness,) = [line for line in text.splitlines() if "staleness" in line]
    assert "polynomial" in staleness
    assert "<- was reject" in staleness


def test_plan_says_that_secure_aggregation_has_not_been_reviewed() -> None:
    assert "reviewed" not in render_plan()
    text = " ".join(render_plan("secure_aggregation=masked").split())
    assert "masked (the protocol has not been reviewed externally" in text


def test_session_start_is_shown_only_if_it_is_not_the_default() -> None:
    assert "session_start" not in render_plan()
    line = next(
        line
        for line in render_plan("session_start=warm-start", "session_trigger=presence").splitlines()
        if "session_start" in line
    )
    assert line.rstrip().endswith("session_start    warm-start   <- was previous")


def test_each_component_that_is_not_the_default_is_shown() -> None:
    for part, choice in (("robust", "median"), ("privacy", "gaussian"), ("alarm", "ddm")):
        assert part not in render_plan()
        lines = render_plan(f"{part}={choice}").splitlines()
        (line,) = [line for line in lines if f"── {part} " in line]
        assert choice in line


def test_values_are_aligned_and_wrapped_in_their_column() -> None:
    plan = make_plan("sfedpo", "digits-partial", overrides=["sample_weights=inverse-age"])
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(plan_tree(plan, None))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    column = next(line.index("dds") for line in lines if "memory" in line)
    assert all(line[column] != " " and line[column - 1] == " " for line in lines[1:])


def test_ground_truth_is_shown_only_if_the_recipe_uses_it() -> None:
    assert "ground truth" not in render_plan()
    expected = {
        "bank=oracle": "bank: true concepts",
        "memory=dds": "forecast: true states (if the world has known states)",
        "objective=elastic": "objective: true state changes",
    }
    for override, use in expected.items():
        (line,) = [line for line in render_plan(override).splitlines() if "ground truth" in line]
        assert line.rstrip().endswith(use)
    text = render_plan("memory=dds", "forecast=exact")
    assert "forecast: true states\n" in "\n".join(map(str.rstrip, text.splitlines()))
    assert "ground truth" not in render_plan("memory=dds", "forecast=growing")


def render_with_data(plan: Plan) -> str:
    console = Console(file=io.StringIO(), width=200, color_system=None)
    console.print(plan_tree(plan, None, plan.scenario.data.load(None, 0)))
    return console.file.getvalue()


def test_automatic_forecast_is_explained_for_data_without_known_states(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((40, 2)), y=np.arange(40) % 2)
    text = render_with_data(make_plan("sfedpo", str(tmp_path / "a.npz")))
    assert "auto (growing: the data have no known states; each client learns its own" in text
    assert "ground truth" not in text
    text = render_with_data(make_plan("sfedpo", "digits-partial"))
    assert "auto (exact: the true probabilities of 24 known states)" in text
    assert "forecast: true states\n" in "\n".join(map(str.rstrip, text.splitlines()))
    text = render_with_data(make_plan("fedavg", "digits-partial"))
    assert "auto (no policy of this recipe uses it)" in text


def test_a_learning_rate_schedule_is_shown_with_the_fields_that_differ() -> None:
    assert ", decay=" not in describe_local(make_plan("fedavg", "digits-full").local)
    decay = ("local.decay=warmup", "local.decay.rounds=3", "local.decay.then=stepwise")
    plan = make_plan("fedavg", "digits-full", overrides=(*decay, "local.decay.then.every=7"))
    assert ", decay=warmup(rounds=3, then=stepwise(every=7))" in describe_local(plan.local)


def render_task(file: Path, y: Any, *overrides: str) -> str:
    np.savez(file, x=np.zeros((len(y), 2)), y=y)
    plan = make_plan("fedavg", str(file), overrides=overrides)
    console = Console(file=io.StringIO(), width=200, color_system=None)
    console.print(plan_tree(plan, None, plan.scenario.data.load(None, 0)))
    lines = console.file.getvalue().splitlines()
    return "\n".join(line[4:] for line in lines if line[4:].startswith(("task", "loss", "metrics")))


def test_task_loss_and_metrics_with_their_direction_are_shown(tmp_path: Path) -> None:
    y = np.arange(20) / 8
    both = render_task(tmp_path / "a.npz", np.stack([y, y], 1), "loss=huber", "loss.delta=2")
    task, loss, metrics = (line.split(maxsplit=1)[1] for line in both.splitlines())
    assert task == "regression, 2 outputs"
    assert loss.startswith("huber(delta=2.0)")
    directions = "mae, rmse (lower is better), r2 (higher is better), "
    assert metrics == directions + "prequential_mae (lower is better)"
    own = render_task(tmp_path / "b.npz", y, "metrics=mine.py:f:higher,mine.py:g", "headline=f")
    assert "f (higher is better), mae, rmse (lower" in own
    assert "g (direction not declared)" in own


def test_whole_numbers_taken_for_classes_are_shown_with_the_other_task(tmp_path: Path) -> None:
    ratings = 1 + np.arange(20) % 5
    note = "classification, 5 classes (the numbers 1 to 5; data.task=regression predicts numbers)"
    assert note in render_task(tmp_path / "a.npz", ratings)
    given = render_task(tmp_path / "a.npz", ratings, "data.task=classification")
    assert "5 classes\n" in given
    assert "5 classes\n" in render_task(tmp_path / "a.npz", np.array(list("abcde") * 4))


def test_parts_without_effect_are_shown_with_the_data() -> None:
    plan = make_plan("fedavg", "digits-partial", overrides=["staleness=polynomial"])
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(plan_tree(plan, None, plan.scenario.data.load(None, 0)))
    (line,) = [line for line in console.file.getvalue().splitlines() if "no effect" in line]
    assert "staleness: no late updates" in line


def test_rows_without_a_client_column_are_explained() -> None:
    data = Dataset.from_frame(
        {
            "x": np.sqrt(np.arange(100.0)),
            "n": [str(i % 9 / 2) for i in range(100)],
            "y": [0, 1] * 50,
        },
        label="y",
    )
    plan = make_plan("fedavg", data)
    lines = dict(describe_data(plan.scenario, data))
    assert lines["clients"] == (
        "10 with 8 rows (no client column: rows in turn, so that all clients are at the same time; "
        "change it with data={'client': ...} or world={'num_clients': 1})"
    )
    assert lines["features"] == "2 numeric (x, n); converted from text n"
    periods = make_plan("fedavg", data, world={"division": "contiguous"})
    assert (
        "later rows train before earlier" in dict(describe_data(periods.scenario, data))["clients"]
    )


def test_parts_of_auto_that_a_regression_replaces_are_shown() -> None:
    y = np.sin(np.arange(100.0))
    console = Console(file=io.StringIO(), width=120, color_system=None)
    for targets in (y, y > 0):
        data = Dataset.from_arrays(np.sqrt(np.arange(100.0))[:, None], targets)
        console.print(plan_tree(make_plan("auto", data), None, data))
    numbers, classes = console.file.getvalue().split("auto on arrays, seed 0")[1:]
    assert "adapted          to a regression: bank=one-model, alarm=window-test" in numbers
    assert "window-test(action=combined(drop_margin=0.2))" in numbers
    assert "adapted" not in classes
    assert "excess-errors(action=combined(recluster=True, drop_margin=0.2))" in classes


def test_parts_without_effect_are_not_listed_as_monitored() -> None:
    always = ["world.availability=1", "world.availability_spread=0", "session_trigger=presence"]
    plan = make_plan("fedavg", "digits-partial", overrides=[*always, "session_start=judged"])
    texts = []
    for data in (plan.scenario.data.load(None, 0), None):
        console = Console(file=io.StringIO(), width=80, color_system=None)
        console.print(plan_tree(plan, None, data))
        texts.append(console.file.getvalue())
    with_data, without_data = texts
    assert "monitors" not in with_data
    assert "session_start: no session opens" in " ".join(with_data.replace("│", " ").split())
    assert without_data.count("monitors") == 2
