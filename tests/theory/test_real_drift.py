import math

import numpy as np
import pytest

from thalweg.core.errors import ConfigError
from thalweg.theory import nearest_centre, precision_recall, real_drift

CENTRES = [[0, 0.5], [4, 0.5]]
NAN = float("nan")


def test_the_sheet_s_two_clients():  # worked example 10
    found = real_drift([[0, 1], [0, 1]], [[3.5, 0], [0.5, 0]], CENTRES)
    assert found.has_drifted.tolist() == [True, False]
    assert (found.old.tolist(), found.new.tolist()) == ([0, 0], [1, 0])


def test_with_one_centre_nobody_drifts():
    assert not real_drift([[0, 1]], [[99, 99]], [[1, 1]]).has_drifted.any()


def test_of_centres_at_the_same_distance_the_first_counts():
    assert nearest_centre([[2, 0.5]], CENTRES).tolist() == [0]


def test_missing_rows_are_left_out_of_the_comparison():
    centres = np.array([[[0.0], [0.0]], [[4.0], [4.0]]])
    points = np.array([[[NAN], [3.9]], [[0.1], [NAN]]])
    assert nearest_centre(points, centres).tolist() == [1, 0]


def test_precision_is_of_what_was_detected_and_recall_of_what_is_true():
    assert precision_recall([True, True, False], [True, False, False]) == (0.5, 1.0)
    assert precision_recall([True, False, False], [True, True, False]) == (1.0, 0.5)


def test_shares_of_nothing_are_not_numbers():
    precision, recall = precision_recall([False, False], [True, False])
    assert math.isnan(precision)
    assert recall == 0
    assert math.isnan(precision_recall([True], [False])[1])


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ConfigError, match="same clients"):
        real_drift([[0, 1]], [[0, 1], [1, 0]], CENTRES)
    with pytest.raises(ConfigError, match="at least one"):
        nearest_centre([[0, 1]], np.empty((0, 2)))
    with pytest.raises(ConfigError, match="one boolean per client"):
        precision_recall([0, 1], [True, False])
