"""Forgetting and backward transfer, from the accuracies on tasks over steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from thalweg.core.types import Floats, Ints
from thalweg.evaluation.recovery import split_by_drift

MetricsRow = Mapping[str, Any]  # the metrics of one round
NEVER = -1  # no client has had the task


def forgetting(table: Floats) -> float:
    r"""Mean over tasks of the best accuracy after any earlier step minus that after the last one.

    .. math::  F = \frac 1 J \sum_j \Bigl(\max_{t < T} a_{t,j} - a_{T,j}\Bigr)

    Negative if the last accuracies are the best. Tasks without an earlier or a last accuracy are
    left out; nan if none is left, as after a single step.

    Symbols: :math:`a_{t,j}` is table[t, j], the accuracy after step t on task j (nan if not
    measured).

    >>> forgetting(np.array([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]]))
    0.125
    """
    if len(table) < 2:
        return float("nan")
    earlier = np.where(np.isnan(table[:-1]), -np.inf, table[:-1]).max(axis=0)
    return _mean(np.where(np.isfinite(earlier), earlier, np.nan) - table[-1])


def backward_transfer(table: Floats, first_met: Ints) -> float:
    r"""Mean over tasks of the last accuracy minus the accuracy after the task's first step.

    .. math::  B = \frac 1 {|J|} \sum_{j \in J} \bigl(a_{T,j} - a_{s_j,j}\bigr),
               \qquad J = \{j : s_j < T\}

    Negative if later training reduced the accuracy. Tasks that no client had before the last step
    are left out; nan if none is left.

    Symbols, Lopez-Paz & Ranzato 2017 -> here
        R_{i,j}   table[i, j]: accuracy after step i on task j (theirs first occurs in step j)
        s_j       first_met[j]: the task's first step, counted from 0; `NEVER` if no client had it

    >>> backward_transfer(np.array([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]]), np.array([0, 1]))
    -0.125
    """
    mine = np.flatnonzero((first_met != NEVER) & (first_met < len(table) - 1))
    return _mean(table[-1, mine] - table[first_met[mine], mine])


class TaskTable(NamedTuple):
    """Accuracies on every task after every measured step, for one way to choose mixtures."""

    rounds: list[int]  # after which tasks were measured, counted from 1
    tasks: list[str]
    accuracy: Floats  # (steps, tasks), nan: not measured
    first_met: Ints  # (tasks,) the first step in which a client had the task; `NEVER`: none had it


def task_table(rows: Iterable[MetricsRow], assignment: str) -> TaskTable | None:
    """Collect the accuracies on tasks from the metrics of a run; None if there are none.

    >>> rows = [{"round": 5, "tasks": [
    ...     {"task": "a", "assignment": "labels", "accuracy": 0.5, "clients": 0},
    ...     {"task": "a", "assignment": "oracle", "accuracy": 0.75, "clients": 0}]}]
    >>> task_table(rows, "labels").accuracy.tolist(), task_table(rows, "oracle").accuracy.tolist()
    ([[0.5]], [[0.75]])
    """
    steps = [
        (
            row["round"],
            {each["task"]: each for each in row["tasks"] if each["assignment"] == assignment},
        )
        for row in rows
        if "tasks" in row
    ]
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
    """Add ``task_accuracy`` (of one task, or the mean over all) and ``forgetting`` so far to rows.

    >>> rows = [{"round": rnd, "tasks": [
    ...     {"task": "a", "assignment": "labels", "accuracy": accuracy, "clients": 1}]}
    ...     for rnd, accuracy in ((1, 0.75), (2, 0.25))]
    >>> [(row["task_accuracy"], row["forgetting"]) for row in add_task_metrics(rows, "labels")]
    [(0.75, None), (0.25, 0.5)]
    """
    shown: list[MetricsRow] = []
    for index, row in enumerate(rows):
        if "tasks" in row and (table := task_table(rows[: index + 1], assignment)):
            mine = [not task or each == task for each in table.tasks]
            found = {
                "task_accuracy": _nan_to_none(_mean(table.accuracy[-1, mine])),
                "forgetting": _nan_to_none(forgetting(table.accuracy[:, mine])),
            }
            row = {**row, **found}
        shown.append(row)
    return shown


def add_two_step_accuracy(rows: Sequence[MetricsRow], assignment: str) -> list[MetricsRow]:
    r"""Add ``two_step_accuracy`` to the last row with tasks of each step between drifts.

    The mean over steps of the accuracy on the data of this step and of the previous one:

    .. math::  \frac 1 T \sum_t \frac 1 2 \Bigl(
               \mathrm{acc}_t(S^t) + \mathrm{acc}_t(S^{t-1})\Bigr)

    The first step has no previous one and counts with its own data only. The first term is the
    accuracy of the clients with their own mixtures. The second one is the mean over clients of the
    accuracy on the task that the client had in the previous step, with the mixture that is assigned
    to the task; tasks without an accuracy are left out.

    Symbols, Peng & Tang, FedDAA (1): :math:`S^t` -> the test set in the clients' views of step t.

    Half of the clients had task a and now have task b, the others had and have b:

    >>> rows = [
    ...     {"accuracy": 0.75, "tasks": [
    ...         {"task": "a", "assignment": "labels", "accuracy": 0.5, "clients": 2},
    ...         {"task": "b", "assignment": "labels", "accuracy": 1.0, "clients": 2}]},
    ...     {"drifted": 2, "accuracy": 1.0, "tasks": [
    ...         {"task": "a", "assignment": "labels", "accuracy": 0.0, "clients": 0},
    ...         {"task": "b", "assignment": "labels", "accuracy": 1.0, "clients": 4}]}]
    >>> [row["two_step_accuracy"] for row in add_two_step_accuracy(rows, "labels")]
    [0.75, 0.75]
    """
    shown: list[MetricsRow] = []
    ended: list[float] = []
    clients: dict[str, int] = {}  # of each task in the previous step
    for step in split_by_drift(rows):
        last = max((k for k, row in enumerate(step) if "tasks" in row), default=None)
        for k, row in enumerate(step):
            if k == last and row.get("accuracy") is not None:
                tasks = {
                    each["task"]: each for each in row["tasks"] if each["assignment"] == assignment
                }
                before = _mean_over_clients(tasks, clients)
                terms = [row["accuracy"], *([] if before is None else [before])]
                ended.append(fmean(terms))
                clients = {task: _clients(record) for task, record in tasks.items()}
                row = {**row, "two_step_accuracy": fmean(ended)}
            shown.append(row)
    return shown


def _mean_over_clients(tasks: Mapping[str, MetricsRow], clients: Mapping[str, int]) -> float | None:
    """Return the mean accuracy of the clients, given the number of clients of each task."""
    known = {task: number for task, number in clients.items() if number > 0}
    known = {task: number for task, number in known.items() if _is_known(tasks.get(task))}
    if not known:
        return None
    return fmean([tasks[task]["accuracy"] for task in known], weights=known.values())


def _is_known(record: MetricsRow | None) -> bool:
    return not np.isnan(_accuracy(record))


def task_summary(rows: Iterable[MetricsRow], assignment: str) -> dict[str, Any] | None:
    """Summarise the tasks of a run for one way to choose mixtures; None if there are none.

    A number that does not exist is None, such as forgetting after one step.
    """
    rows = list(rows)
    table = task_table(rows, assignment)
    if table is None:
        return None
    two_step = [row.get("two_step_accuracy") for row in add_two_step_accuracy(rows, assignment)]
    final = dict(zip(table.tasks, map(_nan_to_none, table.accuracy[-1]), strict=True))
    return {
        "assignment": assignment,
        "rounds": table.rounds,
        "final": final,
        "mean": _nan_to_none(_mean(table.accuracy[-1])),
        "forgetting": _nan_to_none(forgetting(table.accuracy)),
        "backward_transfer": _nan_to_none(backward_transfer(table.accuracy, table.first_met)),
        "two_step_accuracy": next((x for x in reversed(two_step) if x is not None), None),
    }


def _accuracy(record: MetricsRow | None) -> float:
    return float("nan") if record is None or record["accuracy"] is None else record["accuracy"]


def _clients(record: MetricsRow | None) -> int:
    return 0 if record is None else int(record["clients"])


def _nan_to_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _mean(values: Floats) -> float:
    """The mean of the values that are not nan; nan if there is none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")
