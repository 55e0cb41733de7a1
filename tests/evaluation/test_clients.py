"""Accuracy of each client by its label mix or on its own test samples."""

import numpy as np
import pytest

from thalweg.evaluation import accuracies_by_mix, accuracies_by_owner
from thalweg.evaluation.clients import LocalMixes


def test_class_without_test_samples_is_left_out_of_the_mix():
    right, labels = np.array([True, False]), np.array([0, 1])
    mixes = np.array([[0.25, 0.25, 0.5], [0.0, 0.0, 1.0]])
    found = accuracies_by_mix(right, labels, mixes)
    assert found[0] == pytest.approx(0.5)
    assert np.isnan(found[1]), "a client of that class alone has no accuracy"


def test_accuracy_by_mix_is_the_expected_accuracy_on_own_test_sets():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 3000)
    right = rng.random(3000) < np.array([0.9, 0.5, 0.2])[labels]
    mixes = np.array([[0.6, 0.3, 0.1]])
    drawn = np.concatenate(
        [
            rng.choice(np.flatnonzero(labels == c), int(20000 * share))
            for c, share in enumerate(mixes[0])
        ]
    )
    assert accuracies_by_mix(right, labels, mixes)[0] == pytest.approx(
        right[drawn].mean(), abs=0.02
    )


def test_accuracy_by_owner_uses_the_samples_of_each_client():
    right = np.array([True, True, False, True])
    found = accuracies_by_owner(right, np.array([1, 1, 1, 3]), 4)
    np.testing.assert_array_equal(found, [np.nan, 2 / 3, np.nan, 1.0])


def test_a_part_of_the_clients_has_the_bits_of_all():
    rng = np.random.default_rng(0)
    mixes = rng.dirichlet(np.ones(7), 101)
    local_mixes = LocalMixes(mixes)
    for classes in (7, 3, 7):  # views may lack classes
        labels, right = rng.integers(classes, size=50), rng.random(50) < 0.5
        expected = accuracies_by_mix(right, labels, mixes)
        for clients in (np.array([100]), np.array([3, 4, 50]), np.arange(101)):
            found = local_mixes.measure(right, labels, clients)
            assert found.tobytes() == expected[clients].tobytes()
