import math

import numpy as np
import pytest

from thalweg.core.errors import ConfigError
from thalweg.theory import nearest_centre, precision_recall, real_drift

CENTRES = [[0, 0.5], [4, 0.5]]
NAN = float("nan")


def test_real_drift_matches_worked_example():  # worked example 10
    found = real_drift([[0, 1], [0, 1]], [[3.5, 0], [0.5, 0]], CENTRES)
    assert found.has_drifted.tolist() == [True, False]
    assert (found.old.tolist(), found.new.tolist()) == ([0, 0], [1, 0])


def test_single_centre_gives_no_drift():
    assert not real_drift([[0, 1]], [[99, 99]], [[1, 1]]).has_drifted.any()


def test_ties_between_centres_go_to_the_first():
    assert nearest_centre([[2, 0.5]], CENTRES).tolist() == [0]


def test_missing_rows_are_ignored_in_the_nearest_centre():
    centres = np.array([[[0.0], [0.0]], [[4.0], [4.0]]])
    points = np.array([[[NAN], [3.9]], [[0.1], [NAN]]])
    assert nearest_centre(points, centres).tolist() == [1, 0]


def test_precision_and_recall_match_hand_computed_values():
    assert precision_recall([True, True, False], [True, False, False]) == (0.5, 1.0)
    assert precision_recall([True, False, False], [True, True, False]) == (1.0, 0.5)


def test_precision_and_recall_of_empty_sets_are_nan():
    precision, recall = precision_recall([False, False], [True, False])
    assert math.isnan(precision)
    assert recall == 0
    assert math.isnan(precision_recall([True], [False])[1])


def test_invalid_real_drift_inputs_are_rejected():
    with pytest.raises(ConfigError, match="same clients"):
        real_drift([[0, 1]], [[0, 1], [1, 0]], CENTRES)
    with pytest.raises(ConfigError, match="at least one"):
        nearest_centre([[0, 1]], np.empty((0, 2)))
    with pytest.raises(ConfigError, match="one boolean per client"):
        precision_recall([0, 1], [True, False])
