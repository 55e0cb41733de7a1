import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.theory import (
    class_means,
    fill_missing,
    pooled_variance,
    prototypes,
    row_distances,
)

NAN = float("nan")
LOGITS = [[2, 0, -1], [0, 1, 0], [1, 1, 0]]


def test_prototypes_match_worked_example():  # worked example 10
    rows = fill_missing([prototypes(LOGITS, [0, 0, 2], 3)], "zero")[0]
    np.testing.assert_allclose(rows, [[1, 0.5, -0.5], [0, 0, 0], [1, 1, 0]], atol=1e-6)


def test_class_without_samples_has_no_prototype():
    one = prototypes([[1.0, 2.0]], [1], 2)
    assert np.isnan(one[0]).all()
    assert one[1].tolist() == [1.0, 2.0]
    assert np.isnan(prototypes(np.empty((0, 2)), [], 2)).all()


def test_missing_classes_can_be_zeroed_imputed_or_masked():
    mine, yours = [[1.0, 1.0], [NAN, NAN], [NAN, NAN]], [[3.0, 5.0], [4.0, 2.0], [NAN, NAN]]
    both = np.array([mine, yours])
    assert fill_missing(both, "zero")[0].tolist() == [[1, 1], [0, 0], [0, 0]]
    assert fill_missing(both, "impute")[0].tolist() == [
        [1, 1],
        [4, 2],
        [0, 0],
    ]  # no client has class 2
    np.testing.assert_array_equal(fill_missing(both, "mask"), both)
    assert class_means(both).tolist() == [[2, 3], [4, 2], [0, 0]]


def test_reference_prototypes_are_used_for_imputation():
    old, new = np.full((1, 2, 1), NAN), np.array([[[1.0], [2.0]], [[3.0], [NAN]]])
    assert fill_missing(old, "impute", reference=new).tolist() == [[[2.0], [2.0]]]
    with pytest.raises(ConfigError, match="like the points"):
        fill_missing(old, "impute", reference=np.zeros((1, 3, 1)))


def test_row_distances_use_only_common_rows():
    points = [[[0.0], [0.0]], [[0.0], [NAN]], [[NAN], [2.0]]]
    distances = row_distances(points, points)
    on_average = (2 + 2) / 7  # 1 and 2 have no row in common; five of the seven others are 0
    expected = [[0, 0, 2], [0, 0, on_average], [2, on_average, 0]]
    np.testing.assert_allclose(distances, expected, atol=1e-12)


def test_row_distances_without_missing_rows_are_euclidean():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(4, 3, 2)), rng.normal(size=(5, 3, 2))
    plain = np.linalg.norm(a.reshape(4, 1, 6) - b.reshape(1, 5, 6), axis=2)
    np.testing.assert_allclose(row_distances(a, b), plain)
    assert row_distances(a, a).diagonal().tolist() == [0.0] * 4  # to the bit


def test_points_without_common_rows_have_distance_zero():
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
def test_invalid_prototype_inputs_are_rejected(call, words):
    with pytest.raises(ConfigError, match=words):
        call()


def test_the_pooled_variance_is_that_within_the_classes_of_all_groups():
    """Squares: 1 + 1 around 1, 4 + 4 around 5; in the second group 9 + 9; 6 samples, 3 means."""
    groups = []
    for outputs, labels in (([0.0, 2, 3, 7], [0, 0, 1, 1]), ([-3.0, 3], [1, 1])):
        z, y = np.array(outputs)[:, None], np.array(labels)
        groups.append((z, y, prototypes(z, y, 2)))
    assert pooled_variance(groups) == (2 + 8 + 18) / 3


def test_the_pooled_variance_adds_the_outputs_and_needs_two_samples_of_a_class():
    z, y = np.array([[0.0, 0.0], [2.0, 4.0]]), np.array([1, 1])
    assert pooled_variance([(z, y, prototypes(z, y, 2))]) == 2 * (1 + 4)
    one = (z, np.array([0, 1]), prototypes(z, [0, 1], 2))
    assert np.isnan(pooled_variance([one]))
    assert np.isnan(pooled_variance([]))
    empty = (np.empty((0, 2)), np.empty(0, dtype=int), prototypes(np.empty((0, 2)), [], 2))
    assert pooled_variance([empty, (z, y, prototypes(z, y, 2))]) == 10


@given(st.integers(0, 1000), st.floats(-5, 5))
def test_the_pooled_variance_does_not_depend_on_where_the_classes_are(seed, shift):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, 12)
    z = rng.normal(size=(12, 2))
    moved = z + shift * y[:, None]
    expected = pooled_variance([(z, y, prototypes(z, y, 3))])
    assert pooled_variance([(moved, y, prototypes(moved, y, 3))]) == pytest.approx(expected)
