import numpy as np
import pytest

from thalweg.core.errors import ThalwegError
from thalweg.theory import nearest
from thalweg.theory.nearest import nearest_mixture


def test_nearest_mixture_is_the_foot_of_the_perpendicular():
    # from (0, 1) to (4, 1) passes the origin at (0, 1); from (-1, 1) to (3, 1) a quarter of the way
    corners = np.array([[-1.0, 3.0], [1.0, 1.0]])
    np.testing.assert_allclose(nearest_mixture(corners, 0.0), [0.75, 0.25], atol=1e-8)


def test_nearest_corner_gets_all_weight():
    corners = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 1.5]])
    assert nearest_mixture(corners, 0.0).tolist() == [1.0, 0.0, 0.0]
    assert nearest_mixture(corners, 1e-3).tolist() == [1.0, 0.0, 0.0]


def test_identical_corners_get_equal_weights():
    for n in (2, 1000):
        for ridge in (0.0, 1e-9, 1e-3):
            a = nearest_mixture(np.tile([[0.3], [-0.2]], n), ridge)
            np.testing.assert_allclose(a, 1 / n, rtol=1e-9)


def test_ridge_spreads_weight_over_optimal_mixtures():
    corners = np.array([[0.0, 1.0, -1.0], [0.0, 0.0, 0.0]])
    for ridge in (1e-9, 1e-3, 1.0):
        np.testing.assert_allclose(nearest_mixture(corners, ridge), 1 / 3, atol=1e-8)


def test_nearly_equal_corners_get_different_weights():
    # With D = (1, 1 + e): slopes 1 * y + mu a, where y is almost 1, so a0 - a1 = e y / mu.
    a = nearest_mixture(np.array([[1.0, 1.0 + 1e-6]]), 1e-3)
    assert a[0] - a[1] == pytest.approx(1e-3, rel=1e-4)


def test_suboptimal_result_raises_an_error(monkeypatch):
    monkeypatch.setattr(nearest, "MAX_STEPS", 0)
    monkeypatch.setattr(nearest, "MAX_POLISH_STEPS", 0)
    # half of each is y = 1.5 with slopes 1.5 and 3, on average 0.75 above the smaller one
    with pytest.raises(ThalwegError, match=r"optimal to 1e-09, but its suboptimality may be 0\.75"):
        nearest_mixture(np.array([[1.0, 2.0]]), 0.0)


def test_interior_point_result_is_accurate_without_polishing(monkeypatch):
    corners = np.random.default_rng(0).normal(size=(4, 50)) + 0.5
    polished = nearest_mixture(corners, 1e-3)
    monkeypatch.setattr(nearest, "MAX_POLISH_STEPS", 0)
    np.testing.assert_allclose(nearest_mixture(corners, 1e-3), polished, atol=1e-6)
