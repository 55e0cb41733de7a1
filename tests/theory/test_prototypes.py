import numpy as np
import pytest

from thalweg.core.errors import ConfigError
from thalweg.theory import class_means, fill_missing, prototypes, row_distances

NAN = float("nan")
LOGITS = [[2, 0, -1], [0, 1, 0], [1, 1, 0]]


def test_the_sheet_s_prototype():  # worked example 10
    rows = fill_missing([prototypes(LOGITS, [0, 0, 2], 3)], "zero")[0]
    np.testing.assert_allclose(rows, [[1, 0.5, -0.5], [0, 0, 0], [1, 1, 0]], atol=1e-6)


def test_one_sample_has_a_prototype_and_no_sample_has_none():
    one = prototypes([[1.0, 2.0]], [1], 2)
    assert np.isnan(one[0]).all()
    assert one[1].tolist() == [1.0, 2.0]
    assert np.isnan(prototypes(np.empty((0, 2)), [], 2)).all()


def test_missing_classes_in_three_ways():
    mine, yours = [[1.0, 1.0], [NAN, NAN], [NAN, NAN]], [[3.0, 5.0], [4.0, 2.0], [NAN, NAN]]
    both = np.array([mine, yours])
    assert fill_missing(both, "zero")[0].tolist() == [[1, 1], [0, 0], [0, 0]]
    assert fill_missing(both, "impute")[0].tolist() == [[1, 1], [4, 2], [0, 0]]  # nobody has 2
    np.testing.assert_array_equal(fill_missing(both, "mask"), both)
    assert class_means(both).tolist() == [[2, 3], [4, 2], [0, 0]]


def test_old_prototypes_are_imputed_with_the_new_ones():
    old, new = np.full((1, 2, 1), NAN), np.array([[[1.0], [2.0]], [[3.0], [NAN]]])
    assert fill_missing(old, "impute", reference=new).tolist() == [[[2.0], [2.0]]]
    with pytest.raises(ConfigError, match="like the points"):
        fill_missing(old, "impute", reference=np.zeros((1, 3, 1)))


def test_distances_over_the_rows_that_both_have():
    points = [[[0.0], [0.0]], [[0.0], [NAN]], [[NAN], [2.0]]]
    distances = row_distances(points, points)
    on_average = (2 + 2) / 7  # 1 and 2 have no row in common; five of the seven others are 0
    expected = [[0, 0, 2], [0, 0, on_average], [2, on_average, 0]]
    np.testing.assert_allclose(distances, expected, atol=1e-12)


def test_without_gaps_the_distance_is_the_plain_one():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(4, 3, 2)), rng.normal(size=(5, 3, 2))
    plain = np.linalg.norm(a.reshape(4, 1, 6) - b.reshape(1, 5, 6), axis=2)
    np.testing.assert_allclose(row_distances(a, b), plain)
    assert row_distances(a, a).diagonal().tolist() == [0.0] * 4  # to the bit


def test_if_nothing_can_be_compared_all_are_alike():
    assert row_distances([[[0.0], [NAN]]], [[[NAN], [7.0]]]).tolist() == [[0.0]]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: prototypes([[NAN]], [0], 1), "diverged"),
        (lambda: prototypes([[1.0]], [1], 1), "0 .. 0"),
        (lambda: prototypes([[1.0]], [0, 0], 1), "a row per sample"),
        (lambda: fill_missing([[[1.0]]], "guess"), "unknown missing 'guess'"),
        (lambda: row_distances([[[1.0]]], [[[1.0, 2.0]]]), "the same shape"),
        (lambda: row_distances([[[np.inf]]], [[[1.0]]]), "finite"),
    ],
)
def test_what_makes_no_sense_is_refused(call, words):
    with pytest.raises(ConfigError, match=words):
        call()
