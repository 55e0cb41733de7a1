import numpy as np
import pytest

from thalweg.core.errors import ConfigError
from thalweg.theory import cluster, count_clusters, row_distances, silhouettes

NAN = float("nan")
SQUARE = np.array([[0.0, 0.0], [0.0, 1.0], [4.0, 0.0], [4.0, 1.0]])
APART = np.linalg.norm(SQUARE[:, None] - SQUARE[None], axis=2)


@pytest.mark.parametrize(
    ("member_of", "expected"),
    [
        ([0, 0, 1, 1], [0.753789] * 4),
        ([0, 1, 2, 2], [0, 0, 0.75, 0.75]),
        ([0, 1, 0, 1], [-0.359612] * 4),
    ],
)
def test_silhouettes_match_worked_example(member_of, expected):  # worked example 10
    np.testing.assert_allclose(silhouettes(APART, np.array(member_of)), expected, atol=1e-6)


def test_square_of_worked_example_has_two_clusters():
    found = count_clusters(SQUARE)
    assert found.size == 2
    assert found.centres.tolist() == [[0, 0.5], [4, 0.5]]
    assert found.scores[2] == pytest.approx(0.753789, abs=1e-6)
    assert found.scores[3] == pytest.approx(0.375, abs=1e-6)
    assert np.isnan(found.scores[[0, 1, 4, 9]]).all()  # at most one less than points


def make_blobs(centres, each, seed=0, spread=0.1):
    rng = np.random.default_rng(seed)
    points = [rng.normal(centre, spread, (each, len(centre))) for centre in centres]
    return np.concatenate(points)


@pytest.mark.parametrize("number", [2, 3, 4, 7])
def test_count_clusters_finds_the_true_number(number):
    corners = 5 * np.eye(8)[:number]
    found = count_clusters(make_blobs(corners, 6))
    assert found.size == number
    assert found.member_of.tolist() == np.repeat(np.arange(number), 6).tolist()


def test_clusters_are_numbered_by_their_first_member():
    points = make_blobs(5 * np.eye(3), 4)
    for seed in range(5):
        assert (
            count_clusters(points, seed=seed).member_of.tolist() == np.repeat([0, 1, 2], 4).tolist()
        )


def test_single_cluster_is_found_only_with_a_threshold():
    cloud = np.random.default_rng(0).normal(size=(40, 2))
    assert count_clusters(cloud).size >= 2
    assert count_clusters(cloud, single_cluster_threshold=0.9).size == 1
    assert count_clusters(SQUARE, single_cluster_threshold=0.25).size == 2


@pytest.mark.parametrize("number", [1, 2, 5])
def test_identical_points_form_one_cluster(number):
    found = count_clusters(np.ones((number, 3)))
    assert found.size == 1
    assert found.centres.tolist() == [[1.0, 1.0, 1.0]]
    assert np.isnan(found.scores).all()


def test_two_points_form_one_cluster():
    found = count_clusters([[0.0, 0.0], [4.0, 0.0]])
    assert found.member_of.tolist() == [0, 0]
    assert found.centres.tolist() == [[2.0, 0.0]]


def test_number_of_clusters_is_limited_by_distinct_points():
    found = count_clusters([[0.0], [0.0], [0.0], [1.0], [1.0]])
    assert found.size == 2
    assert found.scores[2] == 1.0
    assert np.isnan(found.scores[3:]).all()


def test_nearly_identical_points_raise_no_warning():
    points = np.ones((6, 2)) + 1e-16 * np.arange(12).reshape(6, 2)
    points[5, 1] = np.nextafter(1.0, 2.0)
    assert count_clusters(points).size in (1, 2)


def test_requested_number_of_clusters_is_limited_by_points():
    assert cluster(SQUARE, 3).size == 3
    assert cluster(SQUARE[:2], 4).size == 2
    assert cluster(SQUARE[:1], 4).size == 1


def test_missing_rows_do_not_split_a_concept():
    """Two concepts with values +1 and -1; every client lacks one of four classes."""
    rng = np.random.default_rng(0)
    points = np.concatenate([np.ones((8, 4, 3)), -np.ones((8, 4, 3))])
    points += rng.normal(0, 0.05, points.shape)
    for k in range(16):
        points[k, k % 4] = NAN
    found = count_clusters(points)
    assert found.size == 2
    assert found.member_of.tolist() == [0] * 8 + [1] * 8
    np.testing.assert_allclose(found.centres[1], -1, atol=0.1)


def test_class_missing_in_all_members_is_missing_in_the_centre():
    points = np.array([[[0.0], [NAN]], [[0.1], [NAN]], [[5.0], [1.0]], [[5.1], [1.0]]])
    found = count_clusters(points)
    assert found.member_of.tolist() == [0, 0, 1, 1]
    assert np.isnan(found.centres[0, 1, 0])
    assert found.centres[1].ravel().tolist() == pytest.approx([5.05, 1.0])


def test_masked_kmeans_equals_kmeans_without_missing_values():
    from thalweg.theory.masked_kmeans import masked_kmeans

    points = make_blobs(5 * np.eye(4), 5).reshape(20, 2, 2)
    member_of = masked_kmeans(points, 4, seed=0, restarts=10)
    inside = row_distances(points, points)[member_of[:, None] == member_of[None]]
    assert inside.max() < 1
    assert len(np.unique(member_of)) == 4


def test_masked_kmeans_leaves_no_cluster_empty():
    from thalweg.theory.masked_kmeans import masked_kmeans

    points = np.zeros((5, 1, 1))
    points[4] = 1.0
    assert sorted(np.unique(masked_kmeans(points, 4, seed=0, restarts=3))) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("points", "words"),
    [
        (np.empty((0, 2)), "at least one point"),
        ([1.0, 2.0], "at least one point"),
        ([[np.inf, 1.0]], "finite"),
        ([[NAN, 1.0], [1.0, 1.0]], "rows of a prototype"),
    ],
)
def test_invalid_points_are_rejected(points, words):
    with pytest.raises(ConfigError, match=words):
        count_clusters(points)
