import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError, UnknownName
from thalweg.theory import blend_distances, blend_weights, softmin
from thalweg.theory.blend import BLOCK

NOW = [3, 3.5]
PAST = [[3, 4], [0, 1]]
NOW_IN_TENSORS = [(3, 3.5), (0.9, 0.1, 0)]
PAST_IN_TENSORS = [[(3, 4), (1, 0, 0)], [(0, 1), (0, 1, 0)]]
DISTANCES = ["per_tensor_unit", "global_unit", "raw", "inner_product"]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[np.ndarray], list[list[np.ndarray]]]:
    """A fingerprint and some older ones, of one to three tensors; zeros are frequent."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    number = st.one_of(st.just(0.0), st.floats(-10, 10))

    def fingerprint() -> list[np.ndarray]:
        return [np.array(draw(st.lists(number, min_size=n, max_size=n))) for n in sizes]

    return fingerprint(), [fingerprint() for _ in range(draw(st.integers(1, 5)))]


# Worked examples of section 10


def test_raw_distances_match_worked_example():
    np.testing.assert_allclose(blend_distances(NOW, PAST, "raw"), [0.5, 3.905125], atol=1e-6)
    for scale, expected in [(0, (0.5, 0.5)), (1, (0.967864, 0.032136)), (10, (1, 0))]:
        weights = blend_weights(NOW, PAST, scale, distance="raw")
        np.testing.assert_allclose(weights, expected, atol=1e-6)
    assert blend_weights(NOW, PAST, 10, "raw")[1] == pytest.approx(1.6e-15, rel=0.05)


def test_unit_distances_match_worked_example():
    np.testing.assert_allclose(
        blend_distances(NOW, PAST, "global_unit"), [0.065114, 0.693893], atol=1e-6
    )
    for scale, expected in [(1, (0.652213, 0.347787)), (10, (0.998145, 0.001855))]:
        weights = blend_weights(NOW, PAST, scale, "global_unit")
        np.testing.assert_allclose(weights, expected, atol=1e-6)


def test_blended_start_is_the_weighted_mean_of_models():
    models = np.array([[1.0, 0.0], [0.0, 2.0]])
    start = blend_weights(NOW, PAST, 1, "raw") @ models
    np.testing.assert_allclose(start, [0.967864, 0.064271], atol=1e-6)


def test_per_tensor_distances_are_averaged():
    found = blend_distances(NOW_IN_TENSORS, PAST_IN_TENSORS)
    np.testing.assert_allclose(found, [0.087857, 1.013868], atol=1e-6)
    weights = blend_weights(NOW_IN_TENSORS, PAST_IN_TENSORS, 10)
    np.testing.assert_allclose(weights, [0.999905, 0.000095], atol=1e-6)


# By hand


def test_inner_product_distance_is_one_minus_the_cosine():
    right_angle, opposite, same = [0, 5], [-2, 0], [7, 0]
    found = blend_distances([1, 0], [right_angle, opposite, same], "inner_product")
    np.testing.assert_allclose(found, [1, 2, 0], atol=1e-12)
    softmax = np.exp([0, -3, 3]) / np.exp([0, -3, 3]).sum()
    weights = blend_weights([1, 0], [right_angle, opposite, same], 3, "inner_product")
    np.testing.assert_allclose(weights, softmax, atol=1e-12)


@pytest.mark.parametrize("distance", ["per_tensor_unit", "global_unit", "inner_product"])
def test_zero_vectors_have_distance_zero_to_each_other_and_one_to_others(distance):
    assert blend_distances([0, 0], [[0, 0], [3, 4]], distance).tolist() == [0, 1]
    assert blend_distances([3, 4], [[0, 0]], distance).tolist() == [1]


def test_zero_tensors_count_in_the_mean_distance():
    now, then = [[0, 0], [1, 0]], [[[5, 5], [0, 1]], [[0, 0], [0, 1]]]
    np.testing.assert_allclose(blend_distances(now, then), [(1 + math.sqrt(2)) / 2, 0.5**0.5])


def test_infinite_scale_selects_the_nearest_sessions_and_splits_ties():
    past = [[0, 1], [5, 0], [0, -1]]
    assert blend_weights([0, 0], past, math.inf, "raw").tolist() == [0.5, 0, 0.5]
    assert blend_weights([4, 0], past, math.inf, "raw").tolist() == [0, 1, 0]


def test_single_past_session_has_weight_one():
    for scale in (0, 10, math.inf):
        assert blend_weights([1, 2], [[-5, 3]], scale).tolist() == [1.0]


def test_huge_scale_does_not_overflow():
    assert blend_weights([0, 0], [[0, 1], [0, 3]], 1e308, "raw").tolist() == [1, 0]
    assert softmin([1000.0, 1001.0], 1).tolist() == softmin([0.0, 1.0], 1).tolist()


@pytest.mark.parametrize("size", [1e200, 1e-200, 5e-324])
def test_distances_handle_values_whose_squares_overflow_or_underflow(size):
    now, past = [size, 0.0], [[size, 0.0], [0.0, size]]
    np.testing.assert_allclose(blend_distances(now, past, "global_unit"), [0, 2**0.5])
    raw = blend_distances(now, past, "raw")
    assert raw[0] == 0
    assert raw[1] == pytest.approx(2**0.5 * size, rel=1e-9, abs=5e-324)


def test_nearly_parallel_vectors_have_accurate_distances():
    for angle in (
        1e-12,
        1e-9,
        1e-6,
        1e-3,
        0.044,
        0.045,
        0.1,
    ):  # about where products have digits left
        past = [[math.cos(angle), math.sin(angle)]]
        (found,) = blend_distances([1.0, 0.0], past, "global_unit")
        assert found == pytest.approx(2 * math.sin(angle / 2), rel=1e-9)
        (lacking,) = blend_distances([1.0, 0.0], past, "inner_product")
        assert lacking == pytest.approx(2 * math.sin(angle / 2) ** 2, rel=1e-9)


@pytest.mark.parametrize("distance", DISTANCES)
def test_non_finite_fingerprints_are_rejected(distance):
    for bad in (math.nan, math.inf, -math.inf):
        with pytest.raises(ConfigError, match=r"past\[1\] must be finite"):
            blend_distances([[1, 2], [3]], [[[1, 2], [3]], [[1, 2], [bad]]], distance)
        with pytest.raises(ConfigError, match="current must be finite"):
            blend_distances([[1, 2], [bad]], [[[1, 2], [3]]], distance)


def test_vectors_are_single_tensors_and_tensors_may_have_any_shape():
    together = blend_distances(NOW, PAST, "per_tensor_unit")
    assert together.tolist() == blend_distances(NOW, PAST, "global_unit").tolist()
    matrix = [np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones(3)]
    flat = [np.array([1.0, 2.0, 3.0, 4.0]), np.ones(3)]
    other = [[np.eye(2), np.arange(3)]]
    assert blend_distances(matrix, other).tolist() == blend_distances(flat, other).tolist()
    rows = np.array(PAST, dtype=np.float32)
    assert blend_distances(np.array(NOW), rows).tolist() == together.tolist()


def test_long_vectors_are_summed_in_double_precision_blocks():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3 * BLOCK + 5)).astype(np.float32)
    (raw,) = blend_distances(a, [b], "raw")
    assert raw == pytest.approx(np.linalg.norm(a.astype(float) - b.astype(float)), rel=1e-13)
    u, v = (x.astype(float) / np.linalg.norm(x.astype(float)) for x in (a, b))
    assert blend_distances(a, [b])[0] == pytest.approx(np.linalg.norm(u - v), rel=1e-13)


def test_distances_leave_their_inputs_unchanged():
    now, past = np.array([1e200, 2.0]), [np.array([1.0, 1e-200])]
    now.flags.writeable = past[0].flags.writeable = False  # writing raises an error
    for distance in DISTANCES:
        assert blend_distances(now, past, distance).shape == (1,)
    assert now.tolist() == [1e200, 2.0]
    assert past[0].tolist() == [1.0, 1e-200]


# Properties


@given(histories(), st.floats(0, 1000), st.sampled_from(DISTANCES))
def test_blend_weights_sum_to_one(history, scale, distance):
    weights = blend_weights(*history, scale, distance)
    assert weights.shape == (len(history[1]),)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1, abs=1e-12)


@given(st.data(), histories(), st.floats(0, 100), st.sampled_from(DISTANCES))
def test_blend_weights_do_not_depend_on_session_order(
    data: st.DataObject, history, scale, distance
):
    now, past = history
    order = data.draw(st.permutations(range(len(past))))
    shuffled = blend_weights(now, [past[z] for z in order], scale, distance)
    np.testing.assert_allclose(
        shuffled, blend_weights(now, past, scale, distance)[order], atol=1e-12
    )


@given(histories(), st.floats(0, 100), st.floats(0, 100), st.sampled_from(DISTANCES))
def test_larger_scale_gives_the_nearest_session_more_weight(history, one, other, distance):
    low, high = sorted((one, other))
    nearest = blend_distances(*history, distance).argmin()
    less, more = (blend_weights(*history, scale, distance)[nearest] for scale in (low, high))
    assert less <= more + 1e-12
    assert 1 / len(history[1]) <= less + 1e-12


@given(histories(), st.sampled_from(DISTANCES))
def test_session_has_distance_zero_to_itself(history, distance):
    now, past = history
    assert blend_distances(now, [now, *past], distance)[0] == pytest.approx(0, abs=1e-12)


@given(histories(), st.floats(0.01, 100))
def test_unit_distances_do_not_depend_on_vector_length(history, factor):
    now, past = history
    larger = [factor * tensor for tensor in now]
    for distance in ("per_tensor_unit", "global_unit", "inner_product"):
        found = blend_distances(now, past, distance)
        assert found.max() <= 2 + 1e-12
        np.testing.assert_allclose(blend_distances(larger, past, distance), found, atol=1e-7)


# Invalid inputs


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"past": []}, "past must contain at least one session"),
        ({"past": [[1, 2], [1, 2, 3]]}, r"past\[1\] must have tensors of \[2\].* got \[3\]"),
        ({"past": [[[1, 2], [3]]]}, r"past\[0\] must have .* got \[2, 1\]. .* architecture"),
        ({"past": [[1, math.nan]]}, r"past\[0\] must be finite"),
        ({"current": [math.inf, 1]}, "current must be finite"),
        ({"current": []}, "current must be a non-empty vector"),
        ({"current": [[], []]}, "current must be a non-empty vector"),
        ({"current": ["a", "b"]}, "current must hold numbers"),
        ({"current": [1, [2]]}, "current must hold numbers"),
        ({"scale": -1}, "scale must be non-negative"),
        ({"scale": math.nan}, "scale must be non-negative"),
        ({"scale": "10"}, "scale must be a number"),
    ],
)
@pytest.mark.parametrize("distance", ["raw", "per_tensor_unit"])
def test_invalid_blend_inputs_are_rejected(bad, message, distance):
    good = {"current": [1, 2], "past": [[1, 2], [3, 4]], "scale": 1, "distance": distance}
    with pytest.raises(ConfigError, match=message):
        blend_weights(**good | bad)


def test_unknown_distances_and_negative_distances_are_rejected():
    with pytest.raises(UnknownName, match="unknown distance 'two_norm'"):
        blend_weights([1], [[1]], 1, "two_norm")
    with pytest.raises(ConfigError, match="distances must be non-negative"):
        softmin([-1.0], 1)
