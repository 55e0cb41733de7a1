import math

import numpy as np
import pytest

from thalweg.theory import differ_significantly, label_conflict, mean_errors, merge_agreeing

ROWS = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0], [4.0, 4.0]])  # prototypes of four classes


def test_equal_labels_of_shifted_inputs_are_no_conflict():
    assert label_conflict(ROWS, ROWS + 1.5) == 0.0


@pytest.mark.parametrize("labels, share", [([3, 2, 1, 0], 1.0), ([1, 0, 2, 3], 0.5)])
def test_conflict_is_the_share_of_the_classes_with_another_meaning(labels, share):
    assert label_conflict(ROWS, ROWS[labels]) == share


def test_only_classes_that_both_have_are_compared():
    first, second = ROWS.copy(), ROWS[[1, 0, 2, 3]]
    first[2] = np.nan
    assert label_conflict(first, second) == pytest.approx(2 / 3)
    second[[0, 1]] = np.nan  # one common class remains, so that there is nothing to compare
    assert label_conflict(first, second) == 0.0


def test_clusters_without_contradictions_are_merged():
    points = np.stack([ROWS, ROWS + 1, ROWS[::-1], ROWS[::-1] + 1])
    clusters, no_model = np.arange(4), np.zeros((4, 4), dtype=bool)
    assert merge_agreeing(points, clusters, 0.5, no_model).tolist() == [0, 0, 1, 1]
    fits_all = np.ones((4, 4), dtype=bool)
    assert merge_agreeing(points, clusters, 0.5, fits_all).tolist() == [0, 0, 0, 0]


def test_groups_are_numbered_in_the_order_of_their_clusters():
    points = np.stack([ROWS, ROWS[::-1], ROWS])
    no_model = np.zeros((2, 2), dtype=bool)
    assert merge_agreeing(points, np.array([0, 1, 0]), 0.5, no_model).tolist() == [0, 1, 0]


def test_significance_is_that_of_a_chi_squared_sum():
    """Differences of 3 and 4 with errors of 1 and 2: 9 + 4 = 13; limits for two classes."""
    first, second, errors = [[0.0], [0.0]], [[3.0], [4.0]], [1.0, 2.0]
    for level, limit in ((0.01, 9.21), (0.002, 12.43), (0.001, 13.82)):
        assert -2 * math.log(level) == pytest.approx(limit, abs=0.01), "of two degrees of freedom"
        assert differ_significantly(first, second, errors, level) is (limit < 13)


def test_classes_without_a_prototype_or_an_error_are_left_out():
    first, second = [[0.0], [0.0], [np.nan]], [[9.0], [9.0], [9.0]]
    # One class: 9^2 / 3^2 = 9 is below 10.83 and above 6.63, the limit for the level 0.01.
    errors = [3.0, np.nan, 0.1]
    assert not differ_significantly(first, second, errors, 0.001)
    assert differ_significantly(first, second, errors, 0.01)
    assert not differ_significantly(first, second, [np.nan] * 3, 0.01)


def test_with_errors_of_zero_each_difference_is_significant():
    assert differ_significantly([[0.0]], [[1e-6]], [0.0], 0.001)
    assert not differ_significantly([[1.0]], [[1.0]], [0.0], 0.001)


def test_errors_are_rarely_significant_for_equal_groups():
    """Both prototypes are means of 8 samples of variance 1: 5 % of the tests reject."""
    rng = np.random.default_rng(0)
    errors = np.full(4, np.hypot(8**-0.5, 8**-0.5))
    found = [
        differ_significantly(*rng.normal(size=(2, 4, 8, 1)).mean(axis=2), errors, 0.05)
        for _ in range(2000)
    ]
    assert np.mean(found) == pytest.approx(0.05, abs=0.02)


def test_the_error_of_a_mean_falls_with_the_number_of_clients():
    assert mean_errors(np.full((4, 2), 3.0)).tolist() == [1.5, 1.5]
    some = np.array([[6.0, np.nan, np.nan], [8.0, 2.0, np.nan]])
    np.testing.assert_array_equal(mean_errors(some), [5.0, 2.0, np.nan])


@pytest.mark.parametrize(("error", "groups"), [(0.5, [0, 0, 1, 1]), (5.0, [0, 0, 0, 0])])
def test_clusters_that_differ_by_chance_are_merged(error, groups):
    points = np.stack([ROWS, ROWS + 1, ROWS[::-1], ROWS[::-1] + 1])
    no_model, errors = np.zeros((4, 4), dtype=bool), np.full((4, 4), error)
    found = merge_agreeing(points, np.arange(4), 0.5, no_model, errors, 0.001)
    assert found.tolist() == groups


def test_a_prototype_without_a_known_error_is_no_evidence_in_the_mean_of_its_cluster():
    """The first cluster has a prototype of single samples, which moves its mean to (4, 0)."""
    points = np.array([[[0.0], [4.0]], [[8.0], [-4.0]], [[0.0], [4.0]]])
    errors = np.array([[0.1, 0.1], [np.nan, np.nan], [0.1, 0.1]])
    no_model = np.zeros((2, 2), dtype=bool)
    assert merge_agreeing(points, np.array([0, 0, 1]), 0.5, no_model, errors).tolist() == [0, 0, 0]
    errors[1] = 0.1
    assert merge_agreeing(points, np.array([0, 0, 1]), 0.5, no_model, errors).tolist() == [0, 0, 1]


def test_without_known_errors_clusters_are_merged():
    points, errors = np.stack([ROWS, ROWS[::-1]]), np.full((2, 4), np.nan)
    no_model = np.zeros((2, 2), dtype=bool)
    assert merge_agreeing(points, np.arange(2), 0.5, no_model, errors).tolist() == [0, 0]
