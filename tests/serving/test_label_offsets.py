"""Offsets of the classes, with steps that can be checked by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.serving.label_offsets import BLOCK, PRIOR, LabelOffsets, adjust, learn_offsets

NO_FORGETTING = 1e12
HALF = np.array([[0.5, 0.5]])


def test_offsets_change_the_odds_of_the_classes():
    """Odds of 1 : 3 are multiplied by 6 : 2, so that they become equal."""
    found = adjust(LabelOffsets(np.log([6.0, 2.0]), np.zeros(2)), np.array([[0.25, 0.75]]))
    assert found == pytest.approx(HALF)


def test_without_a_sample_so_far_probabilities_do_not_change():
    probs = np.array([[0.2, 0.8]])
    assert adjust(LabelOffsets(), probs).tolist() == probs.tolist()


def ten_of(probs: list[float], label: int) -> tuple[np.ndarray, np.ndarray]:
    """A block of ten equal samples."""
    return np.tile(probs, (BLOCK, 1)), np.full(BLOCK, label)


def test_two_steps_by_hand():
    """The gradient of ten samples of class 0 is 10 (1 - 1/2), their curvature 10 / 4."""
    first, adjusted = learn_offsets(LabelOffsets(), *ten_of([0.5, 0.5], 0), NO_FORGETTING)
    assert adjusted.tolist() == [[0.5, 0.5]] * 10
    step = 5 / (PRIOR + 2.5)
    assert first.offsets == pytest.approx([step, -step])
    assert first.curvature == pytest.approx([2.5, 2.5])
    second, adjusted = learn_offsets(first, *ten_of([0.5, 0.5], 1), NO_FORGETTING)
    q = 1 / (1 + math.exp(-2 * step))
    assert adjusted[9] == pytest.approx([q, 1 - q])
    curvature = 2.5 + 10 * q * (1 - q)
    assert second.curvature == pytest.approx([curvature, curvature])
    after = step - 10 * q / (PRIOR + curvature)
    assert second.offsets == pytest.approx([after, -after])


def test_offsets_change_after_ten_samples():
    probs, labels = ten_of([0.5, 0.5], 0)
    state, _ = learn_offsets(LabelOffsets(), probs[:9], labels[:9], NO_FORGETTING)
    assert state.offsets.tolist() == [0.0, 0.0]
    state, _ = learn_offsets(state, probs[:1], labels[:1], NO_FORGETTING)
    assert state.offsets == pytest.approx([0.4, -0.4])


def test_the_mean_of_the_offsets_is_zero_for_three_classes():
    """The gradients are 20/3, -10/3 and -10/3, and the curvature is 20/9."""
    found, _ = learn_offsets(LabelOffsets(), *ten_of([1 / 3] * 3, 0), NO_FORGETTING)
    step = 10 / 3 / (PRIOR + 20 / 9)
    assert found.offsets == pytest.approx([2 * step, -step, -step])


def test_the_curvature_is_forgotten_over_the_horizon():
    start = LabelOffsets(np.zeros(2), np.array([8.0, 8.0]), np.zeros((2, 2)))
    found, _ = learn_offsets(start, *ten_of([0.5, 0.5], 0), horizon=10.0)
    assert found.curvature == pytest.approx([8 / math.e + 2.5] * 2)


def test_samples_one_by_one_give_the_same_as_together():
    rng = np.random.default_rng(1)
    probs, labels = rng.dirichlet(np.ones(4), 30), rng.integers(0, 4, 30)
    together, adjusted = learn_offsets(LabelOffsets(), probs, labels, 50.0)
    state = LabelOffsets()
    for row in range(30):
        one = slice(row, row + 1)
        assert adjust(state, probs[one])[0] == pytest.approx(adjusted[row], rel=1e-12)
        state, _ = learn_offsets(state, probs[one], labels[one], 50.0)
    assert state.offsets.tolist() == together.offsets.tolist()
    assert state.curvature.tolist() == together.curvature.tolist()


def test_a_probability_does_not_depend_on_its_own_label_or_on_later_ones():
    rng = np.random.default_rng(2)
    probs, labels = rng.dirichlet(np.ones(3), 20), rng.integers(0, 3, 20)
    other = np.where(np.arange(20) >= 8, (labels + 1) % 3, labels)
    _, first = learn_offsets(LabelOffsets(), probs, labels, 50.0)
    _, second = learn_offsets(LabelOffsets(), probs, other, 50.0)
    assert first[:9].tolist() == second[:9].tolist()
    assert (first[9:] != second[9:]).any()


def test_classes_are_predicted_as_often_as_they_occur():
    """The classifier predicts class 2 too often; 70 % of the labels are class 0."""
    rng, frequencies = np.random.default_rng(3), np.array([0.7, 0.2, 0.1])
    labels = rng.choice(3, 6000, p=frequencies)
    logits = rng.normal(size=(6000, 3)) + np.eye(3)[labels] + [0.0, 0.0, 2.0]
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    _, adjusted = learn_offsets(LabelOffsets(), probs, labels, 1000.0)
    last = slice(3000, None)
    occurred = np.bincount(labels[last], minlength=3) / 3000
    assert np.abs(probs[last].mean(axis=0) - occurred).max() > 0.3
    assert adjusted[last].mean(axis=0) == pytest.approx(occurred, abs=0.01)


def test_a_model_that_was_sure_and_wrong_for_long_does_not_break_the_offsets():
    """Float32 probabilities of a trained model are often exactly 0 and 1."""
    probs, labels = np.tile([1.0, 0.0], (20_000, 1)), np.ones(20_000, dtype=int)
    found, adjusted = learn_offsets(LabelOffsets(), probs, labels, 500.0)
    assert np.isfinite(adjusted).all()
    assert adjusted[-1, 1] > 0.9
    assert np.abs(found.offsets).max() < 20


def test_probabilities_of_a_model_that_has_diverged_are_left_out():
    probs = np.array([[0.5, 0.5], [np.nan, np.nan], [0.5, 0.5]])
    labels = np.array([0, 1, 1])
    found, adjusted = learn_offsets(LabelOffsets(), probs, labels, 50.0)
    assert np.isnan(adjusted[1]).all()
    expected, _ = learn_offsets(LabelOffsets(), probs[[0, 2]], labels[[0, 2]], 50.0)
    assert found.offsets.tolist() == expected.offsets.tolist()


@given(
    seed=st.integers(0, 10_000),
    number=st.integers(0, 60),
    num_classes=st.integers(2, 6),
    horizon=st.floats(1, 1e6),
    sharpness=st.sampled_from([0.0, 1.0, 30.0, 1e3]),
)
def test_offsets_are_finite_with_mean_zero(seed, number, num_classes, horizon, sharpness):
    rng = np.random.default_rng(seed)
    logits = sharpness * rng.normal(size=(number, num_classes))
    probs = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    probs = (probs / probs.sum(axis=1, keepdims=True)).astype(np.float32).astype(float)
    labels = rng.integers(0, num_classes, number)
    found, adjusted = learn_offsets(LabelOffsets(), probs, labels, horizon)
    assert np.isfinite(found.offsets).all()
    assert found.offsets.mean() == pytest.approx(0, abs=1e-9)
    assert (found.curvature >= 0).all()
    assert adjusted.sum(axis=1) == pytest.approx(np.ones(number))
