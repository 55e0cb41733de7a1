"""Cells of a study: which rounds and which metric a column shows."""

import pytest

from thalweg.engine.cells import CellJob
from thalweg.engine.plan import make_plan
from thalweg.engine.run_folder import RunFolder
from thalweg.report import scores, study_cells
from thalweg.report.comparison import read_cell
from thalweg.report.study_cells import (
    StudyCell,
    read_study_cell,
    read_study_cells,
    select_rows,
)
from thalweg.scenarios.studies import Column, Row, Study

# Three sessions of twelve rounds; in round r of session s, accuracy is s/4 + r/100.
ROWS = [
    {
        "round": 12 * session + place,
        "session": session,
        "session_round": place,
        "accuracy": 0.0,
        "balanced_accuracy": 0.0,
        "session_accuracy": session / 4 + place / 100,
        "seconds": 1.0,
    }
    for session in range(3)
    for place in range(1, 13)
]


def read_column(tmp_path, column, *, rounds_done=36, metric="accuracy"):
    """Return the cell of a column for a run with `rounds_done` of 36 rounds."""
    study = Study("s", "", "", (Row("plain", "fedavg"),), (column,), (0,), "plain", metric=metric)
    plan = make_plan("fedavg", "digits-full", rounds=36)
    write_run(tmp_path / "run", plan, ROWS[:rounds_done], is_finished=rounds_done == 36)
    return read_study_cell(
        study, StudyCell(study.rows[0], column, CellJob("x", plan, tmp_path / "run", "thalweg"))
    )


def write_run(path, plan, rows, is_finished=True):
    folder = RunFolder(path)
    folder.open(plan, command="thalweg", resume=False)
    folder.commit(len(rows), rows, {"rnd": len(rows)}, {}, set())
    if is_finished:
        folder.finish({"rounds": plan.scenario.rounds})
    folder.close()


def transition(session, **more):
    return Column("digits-full", metric="transition_accuracy", session=session, **more)


def test_transition_accuracy_is_the_mean_of_ten_rounds_of_the_session(tmp_path):
    cell = read_column(tmp_path, transition(1))
    assert scores(cell)["accuracy"] == pytest.approx(1 / 4 + 5.5 / 100)
    assert cell.rows[-1]["round"] == 22
    assert cell.rows[11]["accuracy"] is None, "rounds of the session before are left out"
    assert scores(cell)["balanced_accuracy"] is None, "balanced accuracy is over all labels"


def test_session_accuracy_is_that_of_its_last_round(tmp_path):
    column = Column("digits-full", metric="session_accuracy", session=1)
    cell = read_column(tmp_path, column)
    assert scores(cell)["accuracy"] == pytest.approx(1 / 4 + 12 / 100)
    assert cell.rows[-1]["round"] == 24


def test_cell_is_done_when_the_run_has_passed_its_rounds(tmp_path):
    assert read_column(tmp_path, transition(1), rounds_done=23).is_done


def test_cell_is_interrupted_before_the_run_reaches_its_rounds(tmp_path):
    cell = read_column(tmp_path, transition(1), rounds_done=18)
    assert cell.status == "interrupted"


def test_finished_run_without_the_session_fails_with_a_reason(tmp_path):
    cell = read_column(tmp_path, transition(7))
    assert cell.status == "failed"
    assert cell.reason == "its 36 rounds have no session 7"


def test_cell_with_until_is_done_at_that_round(tmp_path):
    cell = read_column(tmp_path, Column("digits-full", until=12), rounds_done=12)
    assert cell.is_done
    assert cell.rows[-1]["round"] == 12


def test_column_without_a_metric_uses_that_of_the_study(tmp_path):
    cell = read_column(tmp_path, Column("digits-full"), metric="session_accuracy")
    assert scores(cell)["accuracy"] == pytest.approx(2 / 4 + 12 / 100)


def read_finished_column(tmp_path, column, rows):
    """Return the cell of a column for a finished run with these metrics."""
    study = Study("s", "", "", (Row("plain", "fedavg"),), (column,), (0,), "plain")
    plan = make_plan("fedavg", "digits-full", rounds=len(rows))
    rows = [{"round": place, "seconds": 1.0, **row} for place, row in enumerate(rows, start=1)]
    write_run(tmp_path / "run", plan, rows)
    return read_study_cell(
        study, StudyCell(study.rows[0], column, CellJob("x", plan, tmp_path / "run", "thalweg"))
    )


def test_step_accuracy_is_the_mean_of_final_accuracies_of_steps(tmp_path):
    rows = [
        {"accuracy": 0.1},
        {"accuracy": 0.5, "balanced_accuracy": 0.9},
        {"drifted": 6},
        {"accuracy": 1.0},
    ]
    cell = read_finished_column(tmp_path, Column("digits-full", metric="step_accuracy"), rows)
    assert scores(cell)["accuracy"] == 0.75
    assert scores(cell)["balanced_accuracy"] is None


@pytest.mark.parametrize(("step", "expected"), [(1, 0.5), (2, 1.0), (None, 1.0)])
def test_step_of_a_column_ends_before_the_next_drift(tmp_path, step, expected):
    rows = [{"accuracy": 0.1}, {"accuracy": 0.5}, {"drifted": 6}, {"accuracy": 1.0}]
    cell = read_finished_column(tmp_path, Column("digits-full", step=step), rows)
    assert cell.is_done
    assert scores(cell)["accuracy"] == expected


def test_finished_run_without_the_step_fails_with_a_reason(tmp_path):
    rows = [{"accuracy": 0.1}, {"drifted": 6, "accuracy": 0.5}]
    cell = read_finished_column(tmp_path, Column("digits-full", step=3), rows)
    assert (cell.status, cell.reason) == ("failed", "its 2 rounds have 2 steps, not 3")


def task(name, assignment, accuracy):
    return {"task": name, "assignment": assignment, "accuracy": accuracy, "clients": 1}


TASKS = [
    {"tasks": [task("a", "labels", 0.5), task("b", "labels", 0.75), task("a", "oracle", 0.25)]},
    {"tasks": [task("a", "labels", 0.25), task("b", "labels", 1.0), task("a", "oracle", 0.0)]},
]


@pytest.mark.parametrize(
    ("task", "assignment", "metric", "expected"),
    [
        ("a", "labels", "task_accuracy", 0.25),
        ("", "labels", "task_accuracy", (0.25 + 1.0) / 2),
        ("a", "oracle", "task_accuracy", 0.0),
        ("", "labels", "forgetting", (0.25 - 0.25) / 2),
        ("a", "labels", "forgetting", 0.25),
        ("", "oracle", "forgetting", 0.25),
    ],
)
def test_column_uses_the_task_metrics_of_its_assignment(
    tmp_path, task, assignment, metric, expected
):
    column = Column(
        "digits-full", note=f"by {assignment}", metric=metric, task=task, assignment=assignment
    )
    assert scores(read_finished_column(tmp_path, column, TASKS))["accuracy"] == expected


def test_two_step_accuracy_of_a_column_is_that_of_its_assignment(tmp_path):
    rows = [{"accuracy": 0.5, **TASKS[0]}, {"drifted": 2, "accuracy": 1.0, **TASKS[1]}]
    for assignment, previous in (("labels", (0.25 + 1.0) / 2), ("oracle", 0.0)):
        note = f"by {assignment}"
        column = Column("digits-full", (), note, metric="two_step_accuracy", assignment=assignment)
        found = scores(read_finished_column(tmp_path / assignment, column, rows))["accuracy"]
        assert found == pytest.approx((0.5 + (1.0 + previous) / 2) / 2)


def test_task_without_metrics_fails_with_a_reason(tmp_path):
    column = Column("digits-full", note="by labels", metric="task_accuracy", task="c")
    cell = read_finished_column(tmp_path, column, TASKS)
    assert (cell.status, cell.reason) == ("failed", "its metrics have no task 'c'")


def test_column_without_limits_uses_all_rows():
    assert select_rows(ROWS, Column("digits-full"), "accuracy") is ROWS


def test_prequential_accuracy_is_averaged_over_the_whole_run(tmp_path, monkeypatch):
    arriving = [{**row, "prequential_accuracy": row["round"] / 100} for row in ROWS]
    monkeypatch.setattr(f"{__name__}.ROWS", arriving)
    cell = read_column(tmp_path, Column("digits-full"), metric="prequential_accuracy")
    assert scores(cell)["accuracy"] is None
    assert scores(cell)["prequential_accuracy"] == pytest.approx(18.5 / 100)


@pytest.mark.parametrize(("after", "expected"), [(None, (10 + 20 + 60) / 300), (1, 40 / 100)])
def test_a_metric_that_is_a_mean_over_rounds_is_averaged(tmp_path, after, expected):
    rows = [{"loss_change": 0.1, "accuracy": 1.0}, {"loss_change": 0.2}, {"loss_change": 0.6}]
    column = Column("digits-full", metric="loss_change", after=after)
    assert scores(read_finished_column(tmp_path, column, rows))["accuracy"] == expected


ERRORS = [
    {"prequential_mae": 30.0, "mae": 1.0, "client_mae": 2.0},
    {"prequential_mae": 20.0, "mae": 3.0, "client_mae": 4.0},
    {"prequential_mae": 10.0, "mae": 5.0, "client_mae": 6.0},
]


@pytest.mark.parametrize(
    ("after", "expected"), [(None, (30 + 20 + 10) / 3), (1, (20 + 10) / 2), (2, 10.0)]
)
def test_rounds_up_to_after_are_left_out_of_the_mean(tmp_path, after, expected):
    column = Column("digits-full", metric="prequential_mae", after=after)
    found = scores(read_finished_column(tmp_path, column, ERRORS))
    assert found["prequential_mae"] == expected
    assert found["accuracy"] is None
    assert found["mae"] is None, "a study compares by its own metric"


def test_run_that_is_not_finished_stays_unfinished_if_rounds_are_left_out(tmp_path):
    column = Column("digits-full", metric="prequential_accuracy", after=12)
    assert read_column(tmp_path, column, rounds_done=18).status == "interrupted"


@pytest.mark.parametrize(("metric", "expected"), [("mae", 5.0), ("client_mae", 6.0)])
def test_error_of_a_column_is_that_of_the_last_round(tmp_path, metric, expected):
    cell = read_finished_column(tmp_path, Column("digits-full", metric=metric), ERRORS)
    assert scores(cell)["mae"] == expected
    assert scores(cell)["accuracy"] is None


def test_costs_are_summed_over_the_rounds(tmp_path):
    rows = [
        {"bytes_up": 10**6, "bytes_down": 2 * 10**6, "core_seconds": 0.25, "accuracy": 0.5},
        {"bytes_up": 10**6, "bytes_down": 0, "core_seconds": 0.5},
    ]
    cell = read_finished_column(tmp_path / "a", Column("digits-full", metric="megabytes"), rows)
    assert [row["accuracy"] for row in cell.rows] == [3, 4]
    cell = read_finished_column(tmp_path / "b", Column("digits-full", metric="core_seconds"), rows)
    assert scores(cell)["accuracy"] == 0.75


def test_runs_without_core_seconds_have_no_value(tmp_path):
    column = Column("digits-full", metric="core_seconds")
    assert scores(read_finished_column(tmp_path, column, [{"accuracy": 0.5}]))["accuracy"] is None


def test_mean_client_accuracy_is_the_mean_of_evaluated_rounds(tmp_path):
    rows = [{"client_accuracy": 0.1}, {"client_accuracy": 0.4}, {}, {"client_accuracy": 0.8}]
    column = Column("digits-full", metric="mean_client_accuracy", after=1)
    assert scores(read_finished_column(tmp_path, column, rows))["accuracy"] == pytest.approx(0.6)


def test_a_run_that_several_entries_show_is_read_once(tmp_path, monkeypatch):
    columns = (Column("digits-full"), Column("digits-full", note="MB", metric="megabytes"))
    study = Study("s", "", "", (Row("plain", "fedavg"),), columns, (0,), "plain")
    plan = make_plan("fedavg", "digits-full", rounds=1)
    rows = [{"round": 1, "seconds": 1.0, "accuracy": 0.5, "bytes_up": 10**6, "bytes_down": 0}]
    write_run(tmp_path / "run", plan, rows)
    job, read = CellJob("x", plan, tmp_path / "run", "thalweg"), []
    monkeypatch.setattr(study_cells, "read_cell", lambda job: read.append(job) or read_cell(job))
    entries = [StudyCell(study.rows[0], column, job) for column in columns]
    found = read_study_cells(study, entries)
    assert [scores(cell)["accuracy"] for cell in found] == [0.5, 1.0]
    assert len(read) == 1
