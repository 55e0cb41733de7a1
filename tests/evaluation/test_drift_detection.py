"""Precision and recall of the drifts that a bank finds."""

from __future__ import annotations

import numpy as np
import pytest

from thalweg.evaluation import DriftDetection

STEP_0 = {"judged_clients": [], "drifted_clients": []}


def test_drift_precision_and_recall_compare_concepts_with_the_previous_step() -> None:
    detection = DriftDetection()
    assert detection.score(STEP_0, np.array([0, 0, 0, 1, 1, 1])) == {}
    row = {"judged_clients": [0, 1, 2, 3, 4, 5], "drifted_clients": [2, 5]}
    scores = detection.score(row, np.array([0, 1, 1, 1, 1, 1]))
    assert scores == {"drift_precision": 0.5, "drift_recall": 0.5}


def test_rounds_within_a_step_have_no_drift_scores() -> None:
    detection = DriftDetection()
    detection.score(STEP_0, np.array([0, 0]))
    assert detection.score({"clusters_found": 2}, np.array([1, 1])) == {}
    row = {"judged_clients": [0, 1], "drifted_clients": [0, 1]}
    assert detection.score(row, np.array([1, 0])) == {"drift_precision": 0.5, "drift_recall": 1.0}


def test_drift_scores_use_only_judged_clients() -> None:
    detection = DriftDetection()
    detection.score(STEP_0, np.array([0, 0, 0]))
    row = {"judged_clients": [0, 1], "drifted_clients": [1]}
    scores = detection.score(row, np.array([0, 1, 1]))
    assert scores == pytest.approx({"drift_precision": 1.0, "drift_recall": 1.0})


def test_first_step_has_no_drift_scores() -> None:
    row = {"judged_clients": [0], "drifted_clients": [0]}
    assert DriftDetection().score(row, np.array([1])) == {}
