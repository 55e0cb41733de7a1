"""Purity of clusters with respect to the true concepts."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from thalweg.evaluation import purity

CLUSTERS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20)


def test_purity_counts_the_most_common_concept_of_each_cluster():
    # Cluster 7: concepts 0, 0, 1; cluster 2: concepts 1, 1, 2, 3.
    found = purity(np.array([7, 7, 7, 2, 2, 2, 2]), np.array([0, 0, 1, 1, 1, 2, 3]))
    assert found == (2 + 2) / 7


def test_purity_of_one_cluster_is_the_share_of_its_most_common_concept():
    assert purity(np.zeros(4, int), np.array([0, 0, 0, 1])) == 0.75


def test_clusters_of_one_client_are_pure():
    assert purity(np.arange(5), np.zeros(5, int)) == 1.0


def test_purity_without_clients_is_nan():
    assert math.isnan(purity(np.empty(0, int), np.empty(0, int)))


@given(CLUSTERS)
def test_purity_does_not_depend_on_cluster_and_concept_numbers(pairs):
    found, true = np.array(pairs).T
    assert purity(found, true) == purity(10 - found, 7 * true)


@given(CLUSTERS)
def test_splitting_a_cluster_does_not_lower_purity(pairs):
    found, true = np.array(pairs).T
    finer = 2 * found + np.arange(len(found)) % 2
    assert purity(finer, true) >= purity(found, true)
