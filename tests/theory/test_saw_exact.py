import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from thalweg.core.errors import ConfigError
from thalweg.theory import b_term, saw_weights, saw_weights_exact
from theory.cases import rows

sizes = st.integers(1, 7)
noises = st.floats(1e-3, 10)


def solve_with_slsqp(scores, availability, noise):
    """Solve the same program with the general solver SLSQP."""
    size = len(scores)

    def ratio(p):  # b_term without the checks, because SLSQP steps off the simplex
        joint = p * availability
        return (noise * (joint @ p) + 5 / 3 * (joint @ scores)) / joint.sum()

    found = minimize(
        ratio,
        np.full(size, 1 / size),
        method="SLSQP",
        bounds=[(0, 1)] * size,
        constraints=[{"type": "eq", "fun": lambda p: p.sum() - 1}],
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    return np.clip(found.x, 0, 1)


@pytest.mark.parametrize("seed", range(20))
def test_exact_weights_match_a_general_solver(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 9))
    scores, availability = rng.uniform(0, 2, size), rng.uniform(0.05, 1, size)
    noise = float(rng.uniform(0.05, 2))
    ours = saw_weights_exact(scores, availability, noise)
    theirs = solve_with_slsqp(scores, availability, noise)
    best = b_term(ours, availability, scores, noise)
    assert best <= b_term(theirs, availability, scores, noise) + 1e-9
    np.testing.assert_allclose(ours, theirs, atol=2e-3)  # the ratio is flat near its minimum


def test_exact_weights_of_two_clients_match_hand_computed_values():
    # q = 1/2 each and sum p = 1: minimise p0^2 + p1^2 + 5/3 p1 * 0.6, so p0 - p1 = 1/2.
    weights = saw_weights_exact([0.0, 0.6], [0.5, 0.5], noise=1.0)
    np.testing.assert_allclose(weights, [0.75, 0.25], atol=1e-12)


def test_identical_clients_get_equal_weights():
    weights = saw_weights_exact([2.0] * 5, [0.3] * 5, noise=0.01)
    np.testing.assert_allclose(weights, 0.2, atol=1e-12)


def test_zero_noise_selects_the_smallest_score_and_splits_ties():
    assert saw_weights_exact([2, 1, 3], [0.2, 0.3, 0.4], noise=0).tolist() == [0, 1, 0]
    assert saw_weights_exact([1, 2, 1], [0.2, 0.3, 0.4], noise=0).tolist() == [0.5, 0, 0.5]


def test_tiny_noise_gives_nearly_the_zero_noise_weights():
    weights = saw_weights_exact([2, 1, 3], [0.2, 0.3, 0.4], noise=1e-12)
    np.testing.assert_allclose(weights, [0, 1, 0], atol=1e-12)
    assert np.isfinite(saw_weights_exact([2, 1, 3], [0.2, 0.3, 0.4], noise=5e-324)).all()


def test_large_noise_gives_equal_weights():
    weights = saw_weights_exact([0, 5, 9], [0.4, 0.4, 0.4], noise=1e9)
    np.testing.assert_allclose(weights, 1 / 3, atol=1e-6)


def test_one_client_gets_weight_one_and_no_clients_none():
    assert saw_weights_exact([3.0], [0.2], noise=0.1).tolist() == [1.0]
    assert saw_weights_exact([], [], noise=0.1).shape == (0,)


@given(st.data(), sizes, noises)
def test_exact_weights_lie_on_the_simplex(data: st.DataObject, size, noise):
    scores, availability = data.draw(rows(size, 0, 9)), data.draw(rows(size, 0.01, 1))
    weights = saw_weights_exact(scores, availability, noise)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1, abs=1e-12)


@given(st.data(), sizes, noises)
def test_no_other_weights_have_a_better_objective(data: st.DataObject, size, noise):
    scores, availability = data.draw(rows(size, 0, 9)), data.draw(rows(size, 0.01, 1))
    weights = saw_weights_exact(scores, availability, noise)
    best = b_term(weights, availability, scores, noise)
    rivals = [np.full(size, 1 / size), saw_weights(scores, availability, 1.0, 0.5)]
    rivals += list(np.eye(size))
    rival = data.draw(rows(size, 0, 1)) + 1e-6
    rivals += [rival / rival.sum()]
    for rival in rivals:
        for step in (1.0, 0.01):  # far away, and a small step in that direction
            moved = (1 - step) * weights + step * rival
            assert best <= b_term(moved, availability, scores, noise) + 1e-10 * (1 + best)


@given(st.data(), sizes, noises)
def test_exact_weights_satisfy_the_optimality_conditions(data: st.DataObject, size, noise):
    scores, q = data.draw(rows(size, 0, 9)), data.draw(rows(size, 0.01, 1))
    p = saw_weights_exact(scores, q, noise)
    ratio = b_term(p, q, scores, noise)
    # Derivative of numerator - ratio * denominator; equal where p > 0, not smaller where p = 0.
    slope = q * (2 * noise * p + 5 / 3 * scores - ratio)
    level = slope[np.argmax(p)]
    close = 1e-7 * (1 + noise + ratio)
    assert (slope > level - close).all()
    assert np.abs(slope[p > 1e-9] - level).max() < close


@given(st.data(), sizes, noises, st.floats(0.05, 1))
def test_worse_score_never_increases_the_exact_weight(
    data: st.DataObject, size, noise, availability
):
    scores = np.sort(data.draw(rows(size, 0, 9)))
    weights = saw_weights_exact(scores, np.full(size, availability), noise)
    assert (np.diff(weights) <= 1e-9).all()


@given(st.data(), sizes, noises)
def test_exact_weights_ignore_client_order_and_common_shifts(data, size, noise):
    scores, availability = data.draw(rows(size, 0, 9)), data.draw(rows(size, 0.01, 1))
    order = np.array(data.draw(st.permutations(range(size))))
    weights = saw_weights_exact(scores, availability, noise)
    shuffled = saw_weights_exact(scores[order] + 2.0, availability[order], noise)
    np.testing.assert_allclose(shuffled, weights[order], atol=1e-6)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"scores": [1.0]}, "one entry per client"),
        ({"scores": [1.0, float("nan")]}, "scores must be finite"),
        ({"availability": [0.5, 0.0]}, "never"),
        ({"availability": [0.5, 1.1]}, "availability must lie in"),
        ({"noise": -1.0}, "noise must be non-negative"),
        ({"noise": float("nan")}, "noise must be non-negative"),
    ],
)
def test_invalid_exact_saw_inputs_are_rejected(bad, message):
    good = {"scores": [1.0, 2.0], "availability": [0.5, 0.5], "noise": 0.1}
    with pytest.raises(ConfigError, match=message):
        saw_weights_exact(**good | bad)
