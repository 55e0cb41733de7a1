"""The weights of fixed share in C have the bits of those in Python."""

import numpy as np
import pytest

from native.kernel_cases import needs_kernel
from thalweg.native.library import use_native_loops
from thalweg.theory import tracking

pytestmark = needs_kernel


@pytest.fixture
def native():
    """Return the function of the kernel that `fixed_shares` uses."""
    before = tracking._share_weights
    use_native_loops()
    yield tracking._share_weights
    tracking.use_share_weights(before)


def make_case(num_predictors, missing, rng):
    sizes = np.array([3, 0, 17, 1])
    starts = rng.dirichlet(np.ones(num_predictors), size=len(sizes))
    factors = np.exp(-50 * rng.random((sizes.sum(), num_predictors)) ** 2)
    is_missing = rng.random(factors.shape) < missing
    factors[is_missing | (rng.random(factors.shape) < 0.1)] = 0.0  # also losses that underflow
    return starts, factors, is_missing, sizes


@pytest.mark.parametrize("num_predictors", [1, 2, 5, 13])
@pytest.mark.parametrize("missing", [0.0, 0.2, 0.9])
@pytest.mark.parametrize("alpha", [0.0, 0.0125, 1.0])
def test_bits(num_predictors, missing, alpha, native):
    rng = np.random.default_rng(num_predictors)
    case = make_case(num_predictors, missing, rng)
    starts = case[0].copy()
    found, expected = native(*case, alpha), tracking.share_weights(*case, alpha)
    assert native is not tracking.share_weights
    assert case[0].tobytes() == starts.tobytes(), "the weights are not changed in place"
    for mine, other in zip(found, expected, strict=True):
        assert mine.shape == other.shape
        assert mine.tobytes() == other.tobytes()


def test_by_hand(native):
    """The loss of the first predictor halves its weight; the third one has none and keeps 1/2."""
    found = native(
        np.array([[0.25, 0.25, 0.5]]),
        np.array([[0.5, 1.0, 0.0]]),
        np.array([[False, False, True]]),
        np.array([1]),
        0.0,
    )
    assert found.before.tolist() == [[0.25, 0.25, 0.5]]
    assert found.ratios.tolist() == [0.75]
    assert found.after[0] == pytest.approx([1 / 6, 1 / 3, 0.5])


def test_no_forecasters(native):
    nothing = np.empty((0, 2))
    found = native(nothing, nothing, np.empty((0, 2), dtype=bool), np.empty(0, dtype=np.int64), 0.1)
    assert [part.shape for part in found] == [(0, 2), (0, 2), (0,)]
