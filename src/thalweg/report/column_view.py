"""A run as one place of a study's table sees it: until when, and what is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from thalweg.evaluation import add_step_accuracy
from thalweg.evaluation.forgetting import add_task_metrics
from thalweg.report.cells import Cell, replace_accuracy
from thalweg.report.comparison import read_cell
from thalweg.report.study_jobs import StudyCell
from thalweg.scenarios.studies import Column, Metric, Study
from thalweg.scenarios.studies.base import TASK_METRICS

Rows = Sequence[Mapping[str, Any]]


def read_study_cell(study: Study, place: StudyCell) -> Cell:
    """Its rows end where the column looks, and their accuracy is what the column shows."""
    cell, column, metric = read_cell(place.job), place.column, study.metric_of(place.column)
    rows = select_rows(cell.rows, column, metric)
    if metric == "step_accuracy":
        rows = add_step_accuracy(rows)
    elif metric in TASK_METRICS:
        rows = add_task_metrics(rows, column.assignment, column.task)
    if metric == "prequential_accuracy":  # without a test accuracy, recipes are compared by this
        rows = [replace_accuracy(row, None) for row in rows]
    elif metric not in ("accuracy", "client_accuracy"):
        rows = [replace_accuracy(row, _value(row, column, metric)) for row in rows]
    elif metric != "accuracy" or column.session is not None:
        rows = [{**row, "accuracy": _value(row, column, metric)} for row in rows]
    is_at_the_moment = column.until is not None and _has(rows, "round", column.until)
    if len(rows) < len(cell.rows) or is_at_the_moment:  # more rounds change nothing
        alarms = cell.alarms if len(rows) == len(cell.rows) else None  # they are about whole runs
        cell = replace(cell, status="done", reason="", alarms=alarms)
    if cell.is_done and column.session is not None and not _has(rows, "session", column.session):
        reason = f"its {len(cell.rows)} rounds have no session {column.session}"
        cell = replace(cell, status="failed", reason=reason)
    if cell.is_done and column.task and all(row.get("accuracy") is None for row in rows):
        reason = f"its metrics have no task {column.task!r}"
        cell = replace(cell, status="failed", reason=reason)
    return replace(cell, rows=rows, recipe=place.row.label, scenario=column.label)


def select_rows(rows: Rows, column: Column, metric: Metric) -> Rows:
    """The rounds until the moment at which a column looks at a run."""
    if column.until is not None:
        rows = [row for row in rows if row["round"] <= column.until]
    if column.session is None:
        return rows
    if metric == "transition_accuracy":
        from thalweg.evaluation.transitions import take_until_transition

        return take_until_transition(rows, column.session)
    later = (place for place, row in enumerate(rows) if row.get("session", 0) > column.session)
    return rows[: next(later, len(rows))]


def _value(row: Mapping[str, Any], column: Column, metric: Metric) -> float | None:
    """What a round says of the metric; of another session, nothing."""
    is_other = column.session is not None and row.get("session") != column.session
    return None if is_other else row.get(metric)


def _has(rows: Rows, name: str, value: int) -> bool:
    return any(row.get(name) == value for row in rows)
