"""Cells: one run of a comparison each, for one recipe and one seed, finished or not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, get_args

from thalweg.core.errors import require
from thalweg.core.metrics import HEADLINES, Metric, get_metric, is_measured, metrics_in

Status = Literal["done", "failed", "interrupted", "missing"]
AS_MEASURED = (
    "accuracy_as_measured"  # key of the original accuracy in rows that show another metric
)
# Metrics that may differ between runs with the same result.
COSTS = {"seconds", "core_seconds", "bytes_up", "bytes_down"}
ALL_LABEL_METRICS = ("balanced_accuracy", "state_accuracy", "worst_state_accuracy")


@dataclass(frozen=True)
class Cell:
    """One recipe on one scenario with one seed: its result and the command that repeats it."""

    recipe: str
    scenario: str
    seed: int
    status: Status
    reason: str  # why the run is not done; empty if it is
    rows: Sequence[Mapping[str, Any]]  # metrics, one row per round, in the order of the rounds
    command: str
    seconds: float  # computing time of the run
    alarms: Mapping[str, Any] | None = None  # `evaluation.alarm_summary`; None: no drift detector
    headline: str = ""  # the metric by which runs are compared; empty: `choose_headline`
    is_time_ordered: bool = False  # samples arrived in the order of their times
    own_metrics: Mapping[str, Metric] = field(default_factory=dict)  # of the user, by name
    no_effect: Mapping[str, str] = field(default_factory=dict)  # stage without effect -> reason
    repeats_rows: bool = False  # a sample can arrive more than once
    simple_scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Metrics of predictions without features, by their name; only of data of the user."""
    client_names: Sequence[str] = ()  # by number; empty: clients have no names
    alarm_meaning: str = ""  # what an alarm of the recipe means; empty: unknown
    is_deterministic: bool = False  # runs with other seeds would be the same, so there is only one

    def __post_init__(self) -> None:
        where = f"cell {self.recipe!r}, seed {self.seed}"
        for name, value in (("recipe", self.recipe), ("scenario", self.scenario)):
            # Names become table cells and labels of lines, which cannot contain a line break.
            require(
                bool(value.strip()) and value.isprintable(),
                f"{where}: {name} must be a name on one line, got {value!r}.",
            )
        require(
            self.status in get_args(Status),
            f"{where}: status must be one of {', '.join(get_args(Status))}, got {self.status!r}.",
        )
        require(
            self.status != "failed" or bool(self.reason.strip()),
            f"{where}: status is 'failed' but no reason is given; set reason to the error message.",
        )
        require(
            self.status != "done" or len(self.rows) > 0,
            f"{where}: status is 'done' but there are no rounds; use 'missing'.",
        )
        require(
            self.status != "missing" or len(self.rows) == 0,
            f"{where}: status is 'missing' but there are {len(self.rows)} rounds; use "
            "'interrupted'.",
        )
        rounds = [row["round"] for row in self.rows]
        require(
            all(earlier < later for earlier, later in pairwise(rounds)),
            f"{where}: rounds must ascend, got {rounds[:8]}{' ...' if len(rounds) > 8 else ''}.",
        )
        require(
            math.isfinite(self.seconds) and self.seconds >= 0,
            f"{where}: seconds must be finite and not negative, got {self.seconds}.",
        )

    @property
    def is_done(self) -> bool:
        return self.status == "done"

    @property
    def table_metrics(self) -> list[Metric]:
        """The metrics that tables show: the declared ones, the headline and those of the user."""
        found = [*metrics_in("table"), *self.own_metrics.values()]
        if self.headline and self.headline not in {metric.name for metric in found}:
            found.append(get_metric(self.headline))
        return found


def scores(cell: Cell) -> dict[str, float | None]:
    """The metrics of one run that tables show, by name; None: never measured.

    Accuracies are shares of one. Of a finished run, the last evaluated round is the last round.

    >>> rows = [{"round": 1, "prequential_accuracy": 0.2, "bytes_up": 10**6, "bytes_down": 10**6},
    ...         {"round": 2, "prequential_accuracy": 0.6, "accuracy": 0.7}]
    >>> cell = Cell("sfedpo", "digits-full", 0, "done", "", rows, "thalweg run sfedpo", 3.0)
    >>> found = scores(cell)
    >>> found["accuracy"], found["prequential_accuracy"], found["megabytes"], found["seconds"]
    (0.7, 0.4, 2.0, 3.0)
    >>> found["state_accuracy"] is None
    True
    """
    found = {metric.name: metric.aggregate(cell.rows) for metric in cell.table_metrics}
    return found | {"seconds": cell.seconds}


def is_same_run(cell: Cell, other: Cell) -> bool:
    """Whether two runs have the same values of all shared metrics in every round, costs excepted.

    >>> rows = [{"round": 1, "accuracy": 0.5, "seconds": 1.0}]
    >>> cell = Cell("fedavg", "digits-full", 0, "done", "", rows, "thalweg run fedavg", 1.0)
    >>> slower = [{"round": 1, "accuracy": 0.5, "seconds": 2.0, "forecast_states": 1.0}]
    >>> is_same_run(cell, replace(cell, recipe="sfedpo", rows=slower))
    True
    """
    if len(cell.rows) != len(other.rows):
        return False
    shared = {name for row in cell.rows for name in row} & {name for r in other.rows for name in r}
    shared -= COSTS
    return bool(shared & set(HEADLINES)) and all(
        row.get(name) == also.get(name)
        for row, also in zip(cell.rows, other.rows, strict=True)
        for name in shared
    )


def metric_series(cell: Cell, metric: str) -> list[tuple[int, float]]:
    """(round, value) for every round with a finite value of a metric."""
    return [(row["round"], float(row[metric])) for row in cell.rows if is_measured(row.get(metric))]


def use_session_accuracy(cell: Cell) -> Cell:
    """Replace the accuracy of a run with sessions by its session accuracy.

    Recipes are then compared on the labels of the current members. Metrics over all labels are
    removed. In a regression the error on the samples of the current members replaces the error, if
    it is known. A run without sessions is returned unchanged.

    >>> rows = [{"round": 1, "session": 0, "accuracy": 0.4, "session_accuracy": 0.8},
    ...         {"round": 2, "session": 0}]
    >>> cell = Cell("sfedpo", "churn-digits", 0, "done", "", rows, "thalweg run sfedpo", 3.0)
    >>> [row.get("accuracy") for row in use_session_accuracy(cell).rows]
    [0.8, None]
    """
    if not any("session" in row for row in cell.rows):
        return cell
    if any("mae" in row for row in cell.rows):
        rows = [_replace_mae(row) if "session_mae" in row else row for row in cell.rows]
    else:
        rows = [replace_accuracy(row, row.get("session_accuracy")) for row in cell.rows]
    return replace(cell, rows=rows)


def _replace_mae(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the error of the session and without errors over all samples."""
    kept = {name: value for name, value in row.items() if name not in ("rmse", "r2")}
    return {**kept, "mae": row["session_mae"]}


def replace_accuracy(row: Mapping[str, Any], accuracy: float | None) -> dict[str, Any]:
    """Return a row with another accuracy and without the metrics over all labels."""
    kept = {name: value for name, value in row.items() if name not in ALL_LABEL_METRICS}
    as_measured = {AS_MEASURED: row["accuracy"]} if "accuracy" in row else {}
    return {**as_measured, **kept, "accuracy": accuracy}


def group_by_recipe(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Group the cells of one comparison by recipe, in the order of first appearance."""
    require(len(cells) > 0, "there is nothing to compare: no cells were given.")
    scenarios = dict.fromkeys(cell.scenario for cell in cells)
    require(
        len(scenarios) == 1,
        f"a comparison has one scenario, got {', '.join(scenarios)}; report each one separately.",
    )
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        group = groups.setdefault(cell.recipe, [])
        require(
            all(cell.seed != other.seed for other in group),
            f"recipe {cell.recipe!r} has two cells with seed {cell.seed}; expected one.",
        )
        group.append(cell)
    return groups
