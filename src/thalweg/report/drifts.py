"""What drifts did: a small table for runs whose data change, and lines for a single one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

from thalweg.report.cells import AS_MEASURED, Cell, group_by_recipe
from thalweg.report.extras import ExtraTable
from thalweg.report.numbers import NONE, percent_spread
from thalweg.report.summary import spread
from thalweg.report.table import TableColumn

if TYPE_CHECKING:
    from thalweg.evaluation import Recovery

TITLE = "Steps between drifts"
CAPTION = (
    "In %. steps: accuracy of the clients, each with its own models on its own view of the test set, averaged "
    "over them and over steps as they ended. back: drifts after which accuracy came within two points of what it "
    "had been, as far as it was measured; after: how many rounds that took, on average over those. tasks: "
    "accuracy in the end on every view that clients ever have; forgotten: how far that is below the best before. "
    "By labels: the mixture of models for a task was chosen with the task's own test labels; by oracle: it is "
    "that of the clients with its true concept. purity: share of the clients whose concept is the commonest among "
    "those who use the same model most. precision, recall: of the drifts that a bank has found, averaged over "
    "steps."
)
Rows = Sequence[Mapping[str, Any]]
Measure = Callable[[Rows], float | None]


def drift_extra(cells: Sequence[Cell]) -> ExtraTable:
    """Recipe by recipe, over the finished seeds; no columns if nobody drifted in any finished run."""
    return ExtraTable(TITLE, drift_columns(cells), CAPTION)


def drift_columns(cells: Sequence[Cell]) -> list[TableColumn]:
    from thalweg.evaluation import recoveries  # NumPy can wait until now

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
        for heading, measure in _measures().items()
    ]
    shown = [
        measured[0],
        TableColumn("back", [_format_recovered(seeds) for seeds in found.values()]),
        TableColumn("after", [_format_recovery_rounds(seeds) for seeds in found.values()]),
        *measured[1:],
    ]
    return [
        TableColumn("recipe", list(groups)),
        *(column for column in shown if set(column.entries) != {NONE}),
    ]


def _restore_accuracy(rows: Rows) -> Rows:
    """Rows with the accuracy that they had, whatever is shown in its place."""
    if not any(AS_MEASURED in row for row in rows):
        return rows
    without = [{name: row[name] for name in row if name != "accuracy"} for row in rows]
    return [{**row, "accuracy": row[AS_MEASURED]} if AS_MEASURED in row else row for row in without]


def drift_lines(rows: Rows) -> list[tuple[str, str]]:
    """What a single run says of its drifts: a word and a line for each."""
    from thalweg.evaluation import recoveries, step_accuracies, task_summary
    from thalweg.evaluation.tasks import ASSIGNMENTS

    lines = []
    if found := recoveries(rows):
        steps = step_accuracies(rows)
        if steps:
            line = f"{fmean(steps):.4f}   mean over {len(steps)} of them, each as it ended"
            lines.append(
                ("steps", f"{line}; accuracy came back after {_format_recovered([found])} drifts")
            )
    for assignment in ASSIGNMENTS:
        tasks = task_summary(rows, assignment)
        if tasks is not None and tasks["mean"] is not None:
            line = f"{tasks['mean']:.4f}   mean over {len(tasks['final'])} tasks by {assignment}"
            if tasks["forgetting"] is not None:
                line += f", {tasks['forgetting']:.4f} forgotten"
            lines.append(("tasks" if assignment == ASSIGNMENTS[0] else "", line))
    return lines


def _measures() -> dict[str, Measure]:
    """What is averaged over seeds, by heading."""
    from thalweg.evaluation.tasks import ASSIGNMENTS

    return {
        "steps": _mean_step_accuracy,
        **{f"tasks by {how}": partial(_task_metric, how, "mean") for how in ASSIGNMENTS},
        **{f"forgotten by {how}": partial(_task_metric, how, "forgetting") for how in ASSIGNMENTS},
        "purity": partial(_mean_over_rounds, "purity"),
        "precision": partial(_mean_over_rounds, "drift_precision"),
        "recall": partial(_mean_over_rounds, "drift_recall"),
    }


def _mean_step_accuracy(rows: Rows) -> float | None:
    from thalweg.evaluation import step_accuracies

    return _mean(step_accuracies(rows))


def _task_metric(assignment: str, number: str, rows: Rows) -> float | None:
    from thalweg.evaluation import task_summary

    found = task_summary(rows, assignment)
    return None if found is None else found[number]


def _mean_over_rounds(name: str, rows: Rows) -> float | None:
    return _mean([row[name] for row in rows if name in row])


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _format_recovered(seeds: Iterable[Sequence[Recovery]]) -> str:
    lost = [drift for seed in seeds for drift in seed if drift.accuracy_before is not None]
    found = sum(drift.rounds_to_recover is not None for drift in lost)
    return f"{found} of {len(lost)}" if lost else NONE


def _format_recovery_rounds(seeds: Iterable[Sequence[Recovery]]) -> str:
    rounds = [drift.rounds_to_recover for seed in seeds for drift in seed]
    known = [number for number in rounds if number is not None]
    return f"{fmean(known):.1f}" if known else NONE
