"""Mixtures of models for a task, found by labels or by the concept of clients."""

import numpy as np
import pytest

from thalweg.core.mixtures import Mixtures
from thalweg.evaluation import ASSIGNMENTS, mixture_by_concept, mixture_by_labels


def test_mixture_by_labels_by_hand():
    losses = np.array([[0.2, 1.5], [1.2, 0.3]])
    assert mixture_by_labels(losses) == pytest.approx([0.481267, 0.518733], abs=1e-6)


def test_mixture_by_labels_is_finite_for_large_losses():
    assert mixture_by_labels(np.array([[900.0], [1000.0]])) == pytest.approx([1.0, 0.0])


def test_equal_losses_give_a_uniform_mixture():
    assert mixture_by_labels(np.full((4, 3), 0.7)) == pytest.approx([0.25] * 4)


def test_mixture_by_concept_is_the_mean_of_its_clients():
    mixtures = np.array([[1.0, 0.0], [0.6, 0.4], [0.0, 1.0]])
    concepts = np.array([3, 3, 1])
    assert mixture_by_concept(Mixtures.from_rows(mixtures), concepts, 3) == pytest.approx(
        [0.8, 0.2]
    )
    assert mixture_by_concept(Mixtures.from_rows(mixtures), concepts, 1).tolist() == [0.0, 1.0]


def test_concept_without_clients_has_no_mixture():
    assert mixture_by_concept(Mixtures.from_rows(np.eye(2)), np.array([0, 1]), 2) is None


def test_assignments_are_labels_and_oracle():
    assert ASSIGNMENTS == ("labels", "oracle")
