"""Compares the drifts that a bank reports with the true drifts of a simulation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from thalweg.core.types import Ints
from thalweg.theory import precision_recall


class DriftDetection:
    """Scores the drifts that a bank reports at the start of each of its time steps.

    A bank reports the metrics `judged_clients` and `drifted_clients` in the first round of a step.
    A judged client has truly drifted if its concept differs from the one at the start of the
    previous step.

    >>> detection = DriftDetection()
    >>> detection.score({"judged_clients": [], "drifted_clients": []}, np.array([0, 0, 1]))
    {}
    >>> detection.score({"judged_clients": [0, 1, 2], "drifted_clients": [1]}, np.array([0, 1, 0]))
    {'drift_precision': 1.0, 'drift_recall': 0.5}
    """

    def __init__(self) -> None:
        self.concepts: Ints | None = None  # (N,) the true concepts at the start of the last step

    def score(self, row: Mapping[str, Any], concepts: Ints) -> dict[str, float]:
        """Return `drift_precision` and `drift_recall` for a row of metrics.

        Nothing if there are none.

        `concepts` (N,) are the true concepts at the start of the row's round.
        """
        if "judged_clients" not in row:
            return {}
        before, self.concepts = self.concepts, concepts.astype(np.int64)
        clients = np.array(row["judged_clients"], dtype=np.int64)
        if before is None or len(clients) == 0:
            return {}
        is_found = np.isin(clients, row["drifted_clients"])
        scores = precision_recall(is_found, before[clients] != self.concepts[clients])
        named = zip(("drift_precision", "drift_recall"), scores, strict=True)
        return {name: float(score) for name, score in named if not math.isnan(score)}
