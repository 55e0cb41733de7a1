"""What became of earlier tasks: forgetting and backward transfer, from accuracies over steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from thalweg.core.types import Floats, Ints

MetricsRow = Mapping[str, Any]  # what a round says about itself
NEVER = -1  # of a task: no client has met it


def forgetting(table: Floats) -> float:
    r"""Mean over tasks of the best accuracy after any earlier step minus that after the last one.

    .. math::  F = \frac 1 J \sum_j \Bigl(\max_{t < T} a_{t,j} - a_{T,j}\Bigr)

    Negative if tasks are better known in the end than ever before. Tasks without an earlier or a last
    accuracy are left out; nan if none is left, as after a single step.

    table (steps, tasks): accuracies, nan: not measured.

    >>> forgetting(np.array([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]]))
    0.125
    """
    if len(table) < 2:
        return float("nan")
    earlier = np.where(np.isnan(table[:-1]), -np.inf, table[:-1]).max(axis=0)
    return _mean(np.where(np.isfinite(earlier), earlier, np.nan) - table[-1])


def backward_transfer(table: Floats, first_met: Ints) -> float:
    r"""Mean over tasks of the accuracy in the end minus that after the step in which the task was first met.

    .. math::  B = \frac 1 {|J|} \sum_{j \in J} \bigl(a_{T,j} - a_{s_j,j}\bigr), \qquad J = \{j : s_j < T\}

    Negative: what came later has done harm. Tasks that nobody met before the last step are left out; nan if
    none is left.

    Symbols, Lopez-Paz & Ranzato 2017 -> here
        R_{i,j}   table[i, j]: accuracy after step i on task j; theirs is met in step j
        s_j       first_met[j]: counted from 0, `NEVER` for a task that nobody met

    >>> backward_transfer(np.array([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]]), np.array([0, 1]))
    -0.125
    """
    mine = np.flatnonzero((first_met != NEVER) & (first_met < len(table) - 1))
    return _mean(table[-1, mine] - table[first_met[mine], mine])


class TaskTable(NamedTuple):
    """Accuracies on every task after every step that was measured, with mixtures found in one way."""

    rounds: list[int]  # after which they were measured, counted from 1
    tasks: list[str]
    accuracy: Floats  # (steps, tasks), nan: not measured
    first_met: Ints  # (tasks,) the step in which a client first had the task; `NEVER`: none did


def task_table(rows: Iterable[MetricsRow], assignment: str) -> TaskTable | None:
    """What the metrics of a run say of its tasks; None: nothing.

    >>> rows = [{"round": 5, "tasks": [
    ...     {"task": "a", "assignment": "labels", "accuracy": 0.5, "clients": 0},
    ...     {"task": "a", "assignment": "oracle", "accuracy": 0.75, "clients": 0}]}]
    >>> task_table(rows, "labels").accuracy.tolist(), task_table(rows, "oracle").accuracy.tolist()
    ([[0.5]], [[0.75]])
    """
    steps = [
        (row["round"], {each["task"]: each for each in row["tasks"] if each["assignment"] == assignment})
        for row in rows
        if "tasks" in row
    ]  # fmt: skip
    tasks = list(dict.fromkeys(task for _, found in steps for task in found))
    if not tasks:
        return None
    accuracy = np.array([[_accuracy(found.get(task)) for task in tasks] for _, found in steps])
    met = np.array([[_clients(found.get(task)) > 0 for task in tasks] for _, found in steps])
    first_met = np.where(met.any(axis=0), met.argmax(axis=0), NEVER)
    return TaskTable([rnd for rnd, _ in steps], tasks, accuracy, first_met)


def add_task_metrics(
    rows: Sequence[MetricsRow], assignment: str, task: str = ""
) -> list[MetricsRow]:
    """A run in which ``task_accuracy`` is of one task, or the mean over all, and ``forgetting`` is known so far.

    >>> rows = [{"round": rnd, "tasks": [
    ...     {"task": "a", "assignment": "labels", "accuracy": accuracy, "clients": 1}]}
    ...     for rnd, accuracy in ((1, 0.75), (2, 0.25))]
    >>> [(row["task_accuracy"], row["forgetting"]) for row in add_task_metrics(rows, "labels")]
    [(0.75, None), (0.25, 0.5)]
    """
    shown: list[MetricsRow] = []
    for place, row in enumerate(rows):
        if "tasks" in row and (table := task_table(rows[: place + 1], assignment)):
            mine = [not task or each == task for each in table.tasks]
            found = {
                "task_accuracy": _nan_to_none(_mean(table.accuracy[-1, mine])),
                "forgetting": _nan_to_none(forgetting(table.accuracy[:, mine])),
            }
            row = {**row, **found}
        shown.append(row)
    return shown


def task_summary(rows: Iterable[MetricsRow], assignment: str) -> dict[str, Any] | None:
    """The tasks of a run in a few numbers, with how mixtures were found; None: it measured none.

    A number that does not exist is None: there is no forgetting after one step.
    """
    table = task_table(rows, assignment)
    if table is None:
        return None
    final = dict(zip(table.tasks, map(_nan_to_none, table.accuracy[-1]), strict=True))
    return {
        "assignment": assignment,
        "rounds": table.rounds,
        "final": final,
        "mean": _nan_to_none(_mean(table.accuracy[-1])),
        "forgetting": _nan_to_none(forgetting(table.accuracy)),
        "backward_transfer": _nan_to_none(backward_transfer(table.accuracy, table.first_met)),
    }


def _accuracy(record: MetricsRow | None) -> float:
    return float("nan") if record is None or record["accuracy"] is None else record["accuracy"]


def _clients(record: MetricsRow | None) -> int:
    return 0 if record is None else int(record["clients"])


def _nan_to_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _mean(values: Floats) -> float:
    """Of what is known; nan: nothing is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")
