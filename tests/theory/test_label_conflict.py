import numpy as np
import pytest

from thalweg.theory import label_conflict, merge_agreeing

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
