"""Small tables and printed lines about drifts, alarms and policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

from thalweg.core.metrics import METRICS, get_metric, is_measured
from thalweg.report.cells import AS_MEASURED, Cell, group_by_recipe
from thalweg.report.numbers import NONE, amount, format_metric, percent_spread
from thalweg.report.summary import spread
from thalweg.report.table import ExtraTable, TableColumn

if TYPE_CHECKING:
    from thalweg.evaluation import Recovery

DRIFT_NOTES = {  # beginning of a heading -> its meaning; tables explain only the columns they have
    "steps": (
        "accuracy of the clients, each with its own models and its own view of the test set, "
        "averaged over clients and over the ends of the steps between drifts"
    ),
    "recovered": "drifts after which accuracy came within two points of its value before the drift",
    "after": "mean number of rounds until then",
    "tasks": (
        "final accuracy on all views of the data. By labels: the mixture of models for a task was "
        "chosen with the task's own test labels; by oracle: it is the mixture of the clients with "
        "the task's true concept"
    ),
    "forgotten": "difference to the best accuracy after an earlier step",
    "purity": (
        "share of the clients whose concept is the most common one among the users of the same "
        "model"
    ),
    "precision": "share of the drifts found by the bank that are true drifts",
    "recall": "share of the true drifts that the bank found",
}
ALARM_NOTES = {  # as `DRIFT_NOTES`
    "alarms": "raised in a run, over all clients",
    "detected": "drifts followed by an alarm before the client's next drift, over all seeds",
    "delay": "mean number of rounds from drift to alarm",
    "false": "alarms that detect no new drift",
}
Rows = Sequence[Mapping[str, Any]]
Measure = Callable[[Rows], float | None]
AlarmSummary = Mapping[str, Any]  # the result of `evaluation.alarm_summary` for one run


def event_tables(cells: Sequence[Cell]) -> list[ExtraTable]:
    """The tables about drifts, alarms and policies that apply to a comparison."""
    tables = (drift_table(cells), alarm_table(cells), policy_table(cells))
    return [table for table in tables if table.columns]


def drift_table(cells: Sequence[Cell]) -> ExtraTable:
    """Steps between drifts, by recipe, over the finished seeds; no columns without drift."""
    columns = drift_columns(cells)
    return ExtraTable("Steps between drifts", columns, f"In %. {_explain(columns, DRIFT_NOTES)}")


def _explain(columns: Sequence[TableColumn], notes: Mapping[str, str]) -> str:
    """Return the notes on the columns that a table has."""
    shown = {column.heading.partition(" ")[0] for column in columns}
    return " ".join(f"{heading}: {note}." for heading, note in notes.items() if heading in shown)


def drift_columns(cells: Sequence[Cell]) -> list[TableColumn]:
    from thalweg.evaluation import recoveries  # imports NumPy

    groups = {
        recipe: [_restore_accuracy(cell.rows) for cell in group if cell.is_done]
        for recipe, group in group_by_recipe(cells).items()
    }
    if not any(row.get("drifted") for seeds in groups.values() for rows in seeds for row in rows):
        return []
    found = {recipe: [recoveries(rows) for rows in seeds] for recipe, seeds in groups.items()}
    measured = [
        TableColumn(
            heading, [percent_spread(spread(map(measure, seeds))) for seeds in groups.values()]
        )
        for heading, measure in _drift_measures().items()
    ]
    shown = [
        measured[0],
        TableColumn("recovered", [_format_recovered(seeds) for seeds in found.values()]),
        TableColumn("after", [_format_recovery_rounds(seeds) for seeds in found.values()]),
        *measured[1:],
    ]
    return _drop_empty(list(groups), shown)


def _drop_empty(recipes: list[str], shown: Sequence[TableColumn]) -> list[TableColumn]:
    """The names of the recipes and the columns with at least one number."""
    return [
        TableColumn("recipe", recipes),
        *(column for column in shown if set(column.entries) != {NONE}),
    ]


def _restore_accuracy(rows: Rows) -> Rows:
    """Rows with the original accuracy, if a study shows another metric in its place."""
    if not any(AS_MEASURED in row for row in rows):
        return rows
    without = [{name: row[name] for name in row if name != "accuracy"} for row in rows]
    return [{**row, "accuracy": row[AS_MEASURED]} if AS_MEASURED in row else row for row in without]


def drift_lines(rows: Rows) -> list[tuple[str, str]]:
    """What a single run prints about its drifts: a label and a text for each line."""
    from thalweg.evaluation import ASSIGNMENTS, recoveries, step_accuracies, task_summary

    lines = []
    if found := recoveries(rows):
        steps = step_accuracies(rows)
        if steps:
            line = f"{fmean(steps):.4f}   mean over the ends of {len(steps)} steps between drifts"
            lines.append(("steps", line))
            lines.append(("", f"accuracy recovered after {_format_recovered([found])} drifts"))
    for assignment in ASSIGNMENTS:
        tasks = task_summary(rows, assignment)
        if tasks is not None and tasks["mean"] is not None:
            line = f"{tasks['mean']:.4f}   mean over {len(tasks['final'])} tasks by {assignment}"
            if tasks["forgetting"] is not None:
                line += f", {tasks['forgetting']:.4f} forgotten"
            lines.append(("tasks" if assignment == ASSIGNMENTS[0] else "", line))
    return lines


def _drift_measures() -> dict[str, Measure]:
    """The numbers that are averaged over seeds, by heading."""
    from thalweg.evaluation import ASSIGNMENTS

    declared = [METRICS[name] for name in ("purity", "drift_precision", "drift_recall")]
    return {
        "steps": _mean_step_accuracy,
        **{f"tasks by {how}": partial(_task_metric, how, "mean") for how in ASSIGNMENTS},
        **{f"forgotten by {how}": partial(_task_metric, how, "forgetting") for how in ASSIGNMENTS},
        **{metric.column: metric.aggregate for metric in declared},
    }


def _mean_step_accuracy(rows: Rows) -> float | None:
    from thalweg.evaluation import step_accuracies

    steps = step_accuracies(rows)
    return fmean(steps) if steps else None


def _task_metric(assignment: str, number: str, rows: Rows) -> float | None:
    from thalweg.evaluation import task_summary

    found = task_summary(rows, assignment)
    return None if found is None else found[number]


def _format_recovered(seeds: Iterable[Sequence[Recovery]]) -> str:
    lost = [drift for seed in seeds for drift in seed if drift.accuracy_before is not None]
    found = sum(drift.rounds_to_recover is not None for drift in lost)
    return f"{found} of {len(lost)}" if lost else NONE


def _format_recovery_rounds(seeds: Iterable[Sequence[Recovery]]) -> str:
    rounds = [drift.rounds_to_recover for seed in seeds for drift in seed]
    known = [number for number in rounds if number is not None]
    return f"{fmean(known):.1f}" if known else NONE


def alarm_line(found: AlarmSummary) -> str:
    """The alarms of one run on one line.

    >>> alarm_line({"raised": 2})
    '2 raised; the true drifts are unknown'
    >>> alarm_line({"raised": 5, "drifts": 4, "missed": 1, "false_alarms": 2, "mean_delay": 1.5})
    '5 raised, 2 of them false; 3 of 4 drifts detected, mean delay 1.5 rounds'
    """
    if "drifts" not in found:
        return f"{found['raised']} raised; the true drifts are unknown"
    detected = found["drifts"] - found["missed"]
    delay = "" if not detected else f", mean delay {found['mean_delay']:.1f} rounds"
    return (
        f"{found['raised']} raised, {found['false_alarms']} of them false; "
        f"{detected} of {found['drifts']} drifts detected{delay}"
    )


def alarm_table(cells: Sequence[Cell]) -> ExtraTable:
    """Alarms by recipe, over the finished seeds; no columns without a drift detector."""
    columns = alarm_columns(cells)
    caption = _explain(columns, ALARM_NOTES)
    if all(column.heading != "false" for column in columns):
        caption += " The true drifts are unknown."
    return ExtraTable("Alarms", columns, caption)


def alarm_columns(cells: Sequence[Cell]) -> list[TableColumn]:
    groups = {
        recipe: [cell.alarms for cell in group if cell.is_done and cell.alarms is not None]
        for recipe, group in group_by_recipe(cells).items()
    }
    if not any(groups.values()):
        return []
    shown = [
        TableColumn("alarms", [_average("raised", seeds) for seeds in groups.values()]),
        TableColumn("detected", [_format_detected(seeds) for seeds in groups.values()]),
        TableColumn("delay", [_format_delay(seeds) for seeds in groups.values()]),
        TableColumn("false", [_average("false_alarms", seeds) for seeds in groups.values()]),
    ]
    return _drop_empty(list(groups), shown)


def _average(name: str, seeds: Sequence[AlarmSummary]) -> str:
    return amount(spread(found.get(name) for found in seeds))


def _format_detected(seeds: Sequence[AlarmSummary]) -> str:
    drifts = sum(found.get("drifts", 0) for found in seeds)
    missed = sum(found.get("missed", 0) for found in seeds)
    return f"{drifts - missed} of {drifts}" if drifts else NONE


def _format_delay(seeds: Sequence[AlarmSummary]) -> str:
    """The mean over all detected drifts of all seeds."""
    delays = [
        delay
        for found in seeds
        if (delay := found.get("mean_delay")) is not None
        for _ in range(found["drifts"] - found["missed"])
    ]
    return f"{fmean(delays):.1f}" if delays else NONE


def policy_table(cells: Sequence[Cell]) -> ExtraTable:
    """Metrics of single policies, by recipe, over the finished seeds; also undeclared ones."""
    groups = {
        recipe: [cell.rows for cell in group if cell.is_done]
        for recipe, group in group_by_recipe(cells).items()
    }
    own = {name for cell in cells for name in cell.own_metrics}  # in the main table
    names = dict.fromkeys(
        name
        for seeds in groups.values()
        for rows in seeds
        for row in rows
        for name, value in row.items()
        if name not in (AS_MEASURED, *own)
        and "policy table" in get_metric(name).places
        and is_measured(value)
    )
    metrics = [get_metric(name) for name in names]
    shown = [
        TableColumn(
            metric.column,
            [
                format_metric(metric, spread(metric.aggregate(rows) for rows in seeds))
                for seeds in groups.values()
            ],
        )
        for metric in metrics
    ]
    how = {"last": "last round", "mean": "mean over rounds", "sum": "total", "max": "maximum"}
    caption = " ".join(
        f"{metric.column}: {metric.description[:1].lower()}{metric.description[1:]} "
        f"({how[metric.over_rounds]})."
        for metric in metrics
    )
    return ExtraTable(
        "Metrics of policies", _drop_empty(list(groups), shown) if shown else [], caption
    )
