"""Recovery from drifts: the loss of accuracy, the rounds until recovery, the accuracy of steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

MetricsRow = Mapping[str, Any]  # the metrics of one round; `drifted`: clients that drifted in it
MARGIN = 0.02  # accuracy this much below the old one counts as recovered


class Recovery(NamedTuple):
    """The effect of a drift. Accuracies are shares of one; None: never measured."""

    round: int  # first round after the drift, counted from 1
    clients: int  # clients that drifted
    rounds: int  # until the next drift or the end of the run
    accuracy_before: float | None  # the last accuracy before the drift
    lowest: float | None  # the lowest accuracy before the next drift
    rounds_to_recover: int | None
    """Rounds until accuracy is back, less a margin; None: not before the next drift."""


def recoveries(
    rows: Iterable[MetricsRow], margin: float = MARGIN, measure: str = "accuracy"
) -> list[Recovery]:
    """Measure the recovery from every drift in the metrics of a run, one row per round.

    Only evaluated rounds are used: with an evaluation every tenth round, recovery takes at least
    ten. Clients are tested on different data before and after a drift, so accuracy may never
    recover if the new data are harder.

    >>> rows = [{"round": 1, "accuracy": 0.8}, {"round": 2, "drifted": 6, "accuracy": 0.4},
    ...         {"round": 3, "accuracy": 0.79}]
    >>> recoveries(rows)
    [Recovery(round=2, clients=6, rounds=2, accuracy_before=0.8, lowest=0.4, rounds_to_recover=2)]
    """
    steps = split_by_drift(rows)
    found = []
    before: float | None = None
    for number, step in enumerate(steps):
        if number > 0:
            found.append(_recovery(step, before, margin, measure))
        before = _last(step, measure, before)
    return found


def step_accuracies(rows: Iterable[MetricsRow], measure: str = "accuracy") -> list[float]:
    """The last accuracy measured in every step; a step ends with a drift or with the run.

    >>> step_accuracies([{"accuracy": 0.5}, {"drifted": 3}, {"accuracy": 0.25}])
    [0.5, 0.25]
    """
    found = (_last(step, measure, None) for step in split_by_drift(rows))
    return [value for value in found if value is not None]


def add_step_accuracy(rows: Sequence[MetricsRow], measure: str = "accuracy") -> list[MetricsRow]:
    """Add ``step_accuracy`` to rows: the mean of the accuracies at ends of steps and now.

    Its last value is the mean over all steps of the run.

    >>> rows = [{"accuracy": 0.5}, {"drifted": 3}, {"accuracy": 0.25}]
    >>> [row.get("step_accuracy") for row in add_step_accuracy(rows)]
    [0.5, None, 0.375]
    """
    shown: list[MetricsRow] = []
    ended: list[float] = []
    for step in split_by_drift(rows):
        for row in step:
            value = row.get(measure)
            shown.append(row if value is None else {**row, "step_accuracy": fmean([*ended, value])})
        last = _last(step, measure, None)
        ended += [] if last is None else [last]
    return shown


def split_by_drift(rows: Iterable[MetricsRow]) -> list[list[MetricsRow]]:
    """Split rounds into the steps between drifts."""
    steps: list[list[MetricsRow]] = [[]]
    for row in rows:
        if row.get("drifted", 0) > 0 and steps[-1]:
            steps.append([])
        steps[-1].append(row)
    return steps


def _recovery(
    step: Sequence[MetricsRow], before: float | None, margin: float, measure: str
) -> Recovery:
    values = {age: row[measure] for age, row in enumerate(step, start=1) if measure in row}
    back = (age for age, value in values.items() if before is not None and value >= before - margin)
    return Recovery(
        round=step[0]["round"],
        clients=step[0]["drifted"],
        rounds=len(step),
        accuracy_before=before,
        lowest=min(values.values(), default=None),
        rounds_to_recover=next(back, None),
    )


def _last(step: Iterable[MetricsRow], measure: str, otherwise: float | None) -> float | None:
    values = [row[measure] for row in step if row.get(measure) is not None]
    return values[-1] if values else otherwise
