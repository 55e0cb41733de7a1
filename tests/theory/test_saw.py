import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.theory import dds_ratios, heterogeneity_score, saw_weights
from theory.cases import CLIENTS, SPREAD, THIRDS, rows

sizes = st.integers(1, 8)


def test_saw_weights_of_three_clients_match_worked_example():  # worked example 14.8
    ratios = [dds_ratios(probs, THIRDS, SPREAD, 0.5, 0.15, 0.25) for probs in CLIENTS]
    scores = [
        heterogeneity_score(probs, own, THIRDS, SPREAD, 0.5, 5)
        for probs, own in zip(CLIENTS, ratios, strict=True)
    ]
    weights = saw_weights(scores, [0.2, 0.2, 0.2], 1.0, 0.5)
    np.testing.assert_allclose(weights, [0.354866, 0.299680, 0.345454], atol=1e-6)


@pytest.mark.parametrize(
    ("participants", "expected"),
    [
        (None, [0.310345, 0.172414, 0.517241]),
        ([0, 1, 2], [0.310345, 0.172414, 0.517241]),
        ([0, 2], [0.375, 0.625]),
        ([2, 0], [0.625, 0.375]),
        ([True, False, True], [0.375, 0.625]),
        (np.array([1]), [1.0]),
        ([], []),
        ([False, False, False], []),
    ],
)
def test_saw_weights_of_participants_match_worked_example(
    participants, expected
):  # worked example 14.9
    weights = saw_weights([1, 2, 3], [0.2, 0.25, 0.1], 1.0, 0.5, participants)
    assert weights.dtype == np.float64
    assert weights.shape == (len(expected),)
    np.testing.assert_allclose(weights, expected, atol=1e-6)


def test_clients_with_bad_scores_get_zero_weight():  # worked example 14.9
    weights = saw_weights([1, 2, 4], [0.5, 0.5, 0.5], 1.0, 0.0)
    np.testing.assert_allclose(weights, [1, 0, 0], atol=1e-12)


def test_all_zero_weights_become_equal_weights():
    assert saw_weights([9, 9, 9, 9], [0.5] * 4, 1.0, 0.0).tolist() == [0.25] * 4
    assert saw_weights([9, 9, 0], [0.5] * 3, 1.0, 0.0, [0, 1]).tolist() == [0.5, 0.5]


def test_availability_is_clipped_to_at_least_0_01():
    weights = saw_weights([0.0, 0.0, 0.0], [0.0, 0.001, 0.02], 1.0, 0.0)
    np.testing.assert_allclose(weights, [0.4, 0.4, 0.2], atol=1e-12)


def test_values_of_absent_clients_are_ignored():
    nan = float("nan")
    weights = saw_weights([1, nan, 3], [0.2, nan, 0.1], 1.0, 0.5, [0, 2])
    np.testing.assert_allclose(weights, [0.375, 0.625], atol=1e-12)


def test_no_clients_give_no_weights():
    assert saw_weights([], [], 1.0, 0.5).shape == (0,)


@given(st.data(), sizes, st.floats(0, 3), st.floats(-1, 2))
def test_saw_weights_lie_on_the_simplex(data: st.DataObject, size, slope, offset):
    scores, availability = data.draw(rows(size, 0, 9)), data.draw(rows(size, 0, 1))
    weights = saw_weights(scores, availability, slope, offset)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1, abs=1e-12)


@given(st.data(), sizes, st.floats(0, 3), st.floats(-1, 2), st.floats(0.01, 1))
def test_worse_score_never_increases_the_saw_weight(
    data: st.DataObject, size, slope, offset, availability
):
    scores = np.sort(data.draw(rows(size, 0, 9)))
    weights = saw_weights(scores, np.full(size, availability), slope, offset)
    assert (np.diff(weights) <= 1e-15).all()


@given(st.data(), sizes, st.floats(0, 3), st.floats(-1, 2), st.floats(0, 5))
def test_lower_availability_never_decreases_the_saw_weight(
    data: st.DataObject, size, slope, offset, score
):
    availability = np.sort(data.draw(rows(size, 0, 1)))
    weights = saw_weights(np.full(size, score), availability, slope, offset)
    assert (np.diff(weights) <= 1e-15).all()


@given(st.data(), sizes)
def test_participant_mask_equals_passing_only_participants(data: st.DataObject, size):
    scores, availability = data.draw(rows(size, 0, 4)), data.draw(rows(size, 0, 1))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    chosen = saw_weights(scores, availability, 1.0, 0.5, mask)
    alone = saw_weights(scores[mask], availability[mask], 1.0, 0.5)
    np.testing.assert_array_equal(chosen, alone)
    by_id = saw_weights(scores, availability, 1.0, 0.5, np.flatnonzero(mask))
    np.testing.assert_array_equal(chosen, by_id)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"scores": [1.0, float("nan")]}, "scores must be finite"),
        ({"scores": [1.0]}, "one entry per client"),
        ({"scores": [[1.0, 2.0]]}, "one entry per client"),
        ({"availability": [0.5, 1.5]}, "availability must lie in"),
        ({"availability": [0.5, -0.5]}, "availability must lie in"),
        ({"slope": float("nan")}, "slope must be finite"),
        ({"offset": float("inf")}, "offset must be finite"),
        ({"participants": [2]}, r"must lie in 0 \.\. 1"),
        ({"participants": [-1]}, r"must lie in 0 \.\. 1"),
        ({"participants": [0, 0]}, "duplicate ids"),
        ({"participants": [0.0]}, "client ids"),
        ({"participants": [True]}, "2 entries"),
        ({"slope": 1e308, "scores": [-1e308, 0]}, "finite"),
    ],
)
def test_invalid_saw_inputs_are_rejected(bad, message):
    good = {"scores": [1.0, 2.0], "availability": [0.5, 0.5], "slope": 1.0, "offset": 0.5}
    with pytest.raises(ConfigError, match=message):
        saw_weights(**good | bad)
