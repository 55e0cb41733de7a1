"""The best round of a run, and the mean over its last evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from thalweg.core.metrics import is_measured

NUM_LAST = 10  # evaluations in `last_ten_accuracy`
BEST_ROUND_METRICS = ("best_accuracy", "last_ten_accuracy")

MetricsRow = Mapping[str, Any]  # the metrics of one round


def add_best_round(rows: Sequence[MetricsRow]) -> list[MetricsRow]:
    """Return the rows with the best accuracy so far, and its mean over the last ten evaluations.

    The best round is chosen by the test accuracy itself, so it is above what a user can obtain.
    Rounds without an evaluation are unchanged.

    >>> rows = [{"accuracy": 0.25}, {"accuracy": 0.75}, {}, {"accuracy": 0.5}]
    >>> [row.get("best_accuracy") for row in add_best_round(rows)]
    [0.25, 0.75, None, 0.75]
    >>> [row.get("last_ten_accuracy") for row in add_best_round(rows)]
    [0.25, 0.5, None, 0.5]
    """
    measured: list[float] = []
    found: list[MetricsRow] = []
    for row in rows:
        if is_measured(row.get("accuracy")):
            measured.append(float(row["accuracy"]))
            row = {
                **row,
                "best_accuracy": max(measured),
                "last_ten_accuracy": fmean(measured[-NUM_LAST:]),
            }
        found.append(row)
    return found
