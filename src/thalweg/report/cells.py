"""What a comparison is made of: one cell per recipe and seed, finished or not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Any, Literal, NamedTuple, get_args

from thalweg.core.errors import require

Status = Literal["done", "failed", "interrupted", "missing"]
NOTICEABLE_GAP = 0.005  # half a point
AS_MEASURED = "accuracy_as_measured"  # where something else is shown in its place
ALL_LABEL_METRICS = ("balanced_accuracy", "state_accuracy", "worst_state_accuracy")


@dataclass(frozen=True)
class Cell:
    """One recipe on one scenario with one seed: what came of it, and how to repeat it."""

    recipe: str
    scenario: str
    seed: int
    status: Status
    reason: str  # why it is not done; empty if it is
    rows: Sequence[Mapping[str, Any]]  # metrics, one row per round, in the order of the rounds
    command: str
    seconds: float  # that the run took
    alarms: Mapping[str, Any] | None = None  # what they were worth; none: nobody watched

    def __post_init__(self) -> None:
        where = f"cell {self.recipe!r}, seed {self.seed}"
        for name, value in (("recipe", self.recipe), ("scenario", self.scenario)):
            # Names become table cells and labels of lines, where a line break has no place.
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
            f"{where}: it failed, but no reason is given; say what went wrong.",
        )
        require(
            self.status != "done" or len(self.rows) > 0,
            f"{where}: it is called done, but has no rounds; is it 'missing'?",
        )
        require(
            self.status != "missing" or len(self.rows) == 0,
            f"{where}: it is called missing, but has {len(self.rows)} rounds; is it 'interrupted'?",
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


class CellScores(NamedTuple):
    """One run in a few numbers. Accuracies are shares of one; None: never measured."""

    accuracy: float | None  # of the final model on the test set
    state_accuracy: float | None  # of the final model, mean over the latent states
    worst_state_accuracy: float | None  # of the final model, in its worst latent state
    prequential_accuracy: float | None  # on arriving data before it was learnt from
    megabytes: float  # sent up and down over all rounds, 1 MB = 10^6 bytes
    seconds: float
    balanced_accuracy: float | None = None  # of the final model, mean over the classes


def is_noticeable_gap(accuracy: float | None, balanced: float | None) -> bool:
    """Are accuracy and balanced accuracy so far apart that both should be shown?

    They are the same where the test set has as many samples of every class.

    >>> is_noticeable_gap(0.75, 0.7451), is_noticeable_gap(0.75, 0.40), is_noticeable_gap(0.75, None)
    (False, True, False)
    """
    return (
        accuracy is not None and balanced is not None and abs(accuracy - balanced) > NOTICEABLE_GAP
    )


def scores(cell: Cell) -> CellScores:
    """The numbers of one run.

    The final accuracies are those of the last evaluated round, which in a finished run is the last
    round. The prequential accuracy is the plain mean over the rounds that have one: a round with
    many arrivals counts no more than a round with few, so that each moment of the stream counts the
    same.

    >>> rows = [{"round": 1, "prequential_accuracy": 0.2, "bytes_up": 10**6, "bytes_down": 10**6},
    ...         {"round": 2, "prequential_accuracy": 0.6, "accuracy": 0.7}]
    >>> scores(Cell("sfedpo", "digits-full", 0, "done", "", rows, "thalweg run sfedpo", 3.0))
    Scores(accuracy=0.7, state_accuracy=None, worst_state_accuracy=None, prequential_accuracy=0.4,
           megabytes=2.0, seconds=3.0, balanced_accuracy=None)
    """
    tested = [value for _, value in metric_series(cell, "prequential_accuracy")]
    num_bytes = sum(row.get("bytes_up", 0) + row.get("bytes_down", 0) for row in cell.rows)
    return CellScores(
        accuracy=_last(cell, "accuracy"),
        state_accuracy=_last(cell, "state_accuracy"),
        worst_state_accuracy=_last(cell, "worst_state_accuracy"),
        prequential_accuracy=fmean(tested) if tested else None,
        megabytes=num_bytes / 1e6,
        seconds=cell.seconds,
        balanced_accuracy=_last(cell, "balanced_accuracy"),
    )


def metric_series(cell: Cell, metric: str) -> list[tuple[int, float]]:
    """(round, value) wherever a cell measured it; a value that is not finite was not measured."""
    return [
        (row["round"], float(row[metric]))
        for row in cell.rows
        if row.get(metric) is not None and math.isfinite(row[metric])
    ]


def use_session_accuracy(cell: Cell) -> Cell:
    """A run as recipes are compared by it: with sessions, accuracy is that on the labels of the members.

    Who has left does not count any more, and what is measured over all labels is left out. Runs without sessions
    stay as they are.

    >>> rows = [{"round": 1, "session": 0, "accuracy": 0.4, "session_accuracy": 0.8}, {"round": 2, "session": 0}]
    >>> cell = Cell("sfedpo", "churn-digits", 0, "done", "", rows, "thalweg run sfedpo", 3.0)
    >>> [row.get("accuracy") for row in use_session_accuracy(cell).rows]
    [0.8, None]
    """
    if not any("session" in row for row in cell.rows):
        return cell
    rows = [replace_accuracy(row, row.get("session_accuracy")) for row in cell.rows]
    return replace(cell, rows=rows)


def replace_accuracy(row: Mapping[str, Any], accuracy: float | None) -> dict[str, Any]:
    """A row with another accuracy, such as one for some labels only, and without those over all of them."""
    kept = {name: value for name, value in row.items() if name not in ALL_LABEL_METRICS}
    as_measured = {AS_MEASURED: row["accuracy"]} if "accuracy" in row else {}
    return {**as_measured, **kept, "accuracy": accuracy}


def group_by_recipe(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """The cells of one comparison, recipe by recipe in the order they first appear."""
    require(len(cells) > 0, "there is nothing to compare: no cells were given.")
    scenarios = dict.fromkeys(cell.scenario for cell in cells)
    require(
        len(scenarios) == 1,
        f"a comparison is on one scenario, got {', '.join(scenarios)}; report each one by itself.",
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


def _last(cell: Cell, metric: str) -> float | None:
    values = metric_series(cell, metric)
    return values[-1][1] if values else None
