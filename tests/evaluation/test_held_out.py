"""Accuracy, balanced accuracy and accuracy per state on a held-out test set."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.types import Floats, Ints
from thalweg.evaluation import ModelScores, compute_scores

LABELS = np.array([0, 0, 1, 1, 1, 1])
PREDICTED = np.array([0, 1, 1, 1, 1, 0])  # class 0: 1 of 2, class 1: 3 of 4


def scores(
    histograms: list[list[float]],
    importance: list[float] | None = None,
    predicted: Ints = PREDICTED,
    labels: Ints = LABELS,
) -> ModelScores:
    weights: Floats = (
        np.full(len(histograms), 1 / len(histograms))
        if importance is None
        else np.array(importance)
    )
    losses = np.arange(len(labels), dtype=np.float32)
    return compute_scores(predicted == labels, losses, labels, np.array(histograms), weights)


def test_accuracy_and_loss_are_plain_means() -> None:
    got = scores([[0.5, 0.5]])
    assert got.accuracy == pytest.approx(4 / 6)
    assert got.loss == pytest.approx(2.5)


def test_balanced_accuracy_is_the_mean_recall() -> None:
    assert scores([[0.5, 0.5]]).balanced_accuracy == pytest.approx((1 / 2 + 3 / 4) / 2)


def test_constant_prediction_has_balanced_accuracy_one_over_classes() -> None:
    labels = np.array([0] * 8 + [1, 2])
    got = scores([[1, 0, 0]], predicted=np.zeros(10, dtype=np.int64), labels=labels)
    assert got.accuracy == pytest.approx(0.8)
    assert got.balanced_accuracy == pytest.approx(1 / 3)


def test_class_without_test_samples_does_not_lower_balanced_accuracy() -> None:
    assert scores([[1, 0, 0, 0]]).balanced_accuracy == pytest.approx(0.625)


def test_state_accuracy_is_the_mean_over_its_classes() -> None:
    got = scores([[1, 0], [0, 1], [0.5, 0.5]])  # 0.5, 0.75, 0.625
    assert got.state_accuracy == pytest.approx(0.625)
    assert got.worst_state_accuracy == pytest.approx(0.5)


def test_states_are_weighted_by_importance() -> None:
    assert scores([[1, 0], [0, 1]], [0.2, 0.8]).state_accuracy == pytest.approx(0.7)
    assert scores([[1, 0], [0, 1]], [0.0, 1.0]).state_accuracy == pytest.approx(0.75)


def test_state_with_the_mix_of_the_test_set_has_its_accuracy() -> None:
    got = scores([[2 / 6, 4 / 6]])
    assert got.state_accuracy == got.worst_state_accuracy == pytest.approx(got.accuracy)


def test_class_without_test_samples_is_left_out_of_the_state_mix() -> None:
    # Half of the second state is class 2, which has no test samples: only class 1 counts.
    got = scores([[1, 0, 0], [0, 0.5, 0.5]])
    assert got.state_accuracy == pytest.approx((0.5 + 0.75) / 2)


def test_state_without_test_samples_is_ignored() -> None:
    got = scores([[1, 0, 0], [0, 0, 1]], [0.1, 0.9])
    assert got.state_accuracy == got.worst_state_accuracy == pytest.approx(0.5)


def test_states_count_equally_if_only_untested_states_have_importance() -> None:
    got = scores([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [0.0, 0.0, 1.0])
    assert got.state_accuracy == pytest.approx(0.625)


def test_no_state_score_without_testable_states() -> None:
    got = scores([[0, 0, 1]])
    assert got.accuracy == pytest.approx(4 / 6)
    assert math.isnan(got.state_accuracy)
    assert math.isnan(got.worst_state_accuracy)


def test_losses_are_summed_in_double_precision() -> None:
    losses = np.full(3_000_000, 0.1, dtype=np.float32)
    zeros = np.zeros(3_000_000, dtype=np.int64)
    got = compute_scores(zeros == zeros, losses, zeros, np.ones((1, 1)), np.ones(1))
    assert got.loss == pytest.approx(float(np.float32(0.1)), rel=1e-12)


@given(
    pairs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30),
    seed=st.integers(0, 9),
)
def test_scores_are_in_unit_interval_and_worst_state_is_at_most_the_mean(
    pairs: list[tuple[int, int]], seed: int
) -> None:
    predicted, labels = np.array(pairs).T
    histograms = np.random.default_rng(seed).dirichlet(np.ones(4), 5)
    got = scores(histograms.tolist(), predicted=predicted, labels=labels)
    assert 0 <= got.worst_state_accuracy <= got.state_accuracy + 1e-12 <= 1 + 2e-12
    assert 0 <= got.accuracy <= 1
    assert 0 <= got.balanced_accuracy <= 1
