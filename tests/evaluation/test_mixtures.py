"""Predictions and tests of clients that use a mixture of models."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.mixtures import Mixtures
from thalweg.evaluation.mixtures import client_tests, group_clients, mix_scores, score_mixture

# Two models, three samples, two classes: the models predict 0, 0, 0 and 1, 1, 0.
SCORES = np.log(
    np.array(
        [[[0.75, 0.25], [0.75, 0.25], [0.75, 0.25]], [[0.1, 0.9], [0.4, 0.6], [0.9, 0.1]]],
        dtype=np.float32,
    )
)
LABELS = np.array([0, 1, 0])


def test_mixture_averages_probabilities():
    together = np.exp(mix_scores(SCORES, np.array([0.5, 0.5])))
    assert together == pytest.approx(np.array([[0.425, 0.575], [0.575, 0.425], [0.825, 0.175]]))


def test_mixture_of_one_model_has_its_scores_bit_by_bit():
    assert mix_scores(SCORES, np.array([0.0, 1.0])).tobytes() == SCORES[1].tobytes()


def test_mixture_with_infinite_scores_is_finite():
    scores = np.array([[[0.0, -np.inf]], [[np.log(0.5), np.log(0.5)]]], dtype=np.float32)
    assert np.exp(mix_scores(scores, np.array([0.5, 0.5]))) == pytest.approx(
        np.array([[0.75, 0.25]])
    )


def test_score_mixture_gives_correctness_and_cross_entropy():
    right, losses = score_mixture(SCORES, np.array([0.5, 0.5]), LABELS)
    assert right.tolist() == [False, False, True]
    assert losses == pytest.approx(-np.log([0.425, 0.425, 0.825]), rel=1e-6)


def test_clients_with_equal_view_and_mixture_are_grouped():
    mixtures = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    found = group_clients(np.array([0, 0, 0, 1]), Mixtures.from_rows(mixtures))
    assert sorted((each.view, each.clients.tolist()) for each in found) == [
        (0, [0, 2]),
        (0, [1]),
        (1, [3]),
    ]


def score_models(view, models):
    return SCORES[models]


def test_each_client_is_tested_with_its_own_mixture_and_view():
    # View 1 swaps the labels. Model 0 predicts 0, 0, 0, and model 1 predicts 1, 1, 0:
    # in view 0 (labels 0, 1, 0) both are
    # right about two, in view 1 (labels 1, 0, 1) model 1 is right about one.
    views, mixtures = np.array([0, 0, 1]), np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    found = client_tests(
        score_models, {0: LABELS, 1: 1 - LABELS}, views, Mixtures.from_rows(mixtures)
    )
    assert found.local_accuracies == pytest.approx([2 / 3, 2 / 3, 1 / 3])
    assert found.right == pytest.approx([2 / 3, 1 / 3, 2 / 3])
    assert found.right.mean() == pytest.approx(found.local_accuracies.mean())


def test_local_accuracy_can_use_own_samples_of_clients():
    owner = np.array([1, 1, 0])

    def of_owner(right, labels, clients):
        return np.array([right[owner == client].mean() for client in clients])

    mixtures = Mixtures.from_rows(np.eye(2))
    found = client_tests(score_models, {0: LABELS}, np.zeros(2, int), mixtures, of_owner)
    assert found.local_accuracies.tolist() == [1.0, 0.5]
    assert found.accuracies == pytest.approx([2 / 3, 2 / 3])


def test_local_accuracy_without_samples_is_nan():
    labels = {0: np.empty(0, int)}
    mixtures = Mixtures.from_rows(np.eye(2))
    found = client_tests(
        lambda view, models: SCORES[models, :0], labels, np.zeros(2, int), mixtures
    )
    assert np.isnan(found.local_accuracies).all()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12))
def test_each_client_is_in_one_group_with_its_view_and_mixture(clients):
    views = np.array([view for view, _ in clients])
    mixtures = np.array([[share / 2, 1 - share / 2] for _, share in clients])
    found = group_clients(views, Mixtures.from_rows(mixtures))
    assert sorted(k for each in found for k in each.clients.tolist()) == list(range(len(clients)))
    for each in found:
        assert (views[each.clients] == each.view).all()
        expected = np.zeros(2)
        expected[each.models] = each.weights
        assert (mixtures[each.clients] == expected).all()
