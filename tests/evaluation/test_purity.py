import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from thalweg.evaluation import purity

CLUSTERS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20)


def test_the_commonest_concept_of_a_cluster_is_its_own():
    # Cluster 7: concepts 0, 0, 1; cluster 2: concepts 1, 1, 2, 3.
    found = purity(np.array([7, 7, 7, 2, 2, 2, 2]), np.array([0, 0, 1, 1, 1, 2, 3]))
    assert found == (2 + 2) / 7


def test_everybody_together_is_as_pure_as_the_commonest_concept():
    assert purity(np.zeros(4, int), np.array([0, 0, 0, 1])) == 0.75


def test_a_cluster_each_is_pure():
    assert purity(np.arange(5), np.zeros(5, int)) == 1.0


def test_nobody_has_no_purity():
    assert math.isnan(purity(np.empty(0, int), np.empty(0, int)))


@given(CLUSTERS)
def test_names_of_clusters_and_concepts_do_not_matter(pairs):
    found, true = np.array(pairs).T
    assert purity(found, true) == purity(10 - found, 7 * true)


@given(CLUSTERS)
def test_splitting_a_cluster_makes_nothing_less_pure(pairs):
    found, true = np.array(pairs).T
    finer = 2 * found + np.arange(len(found)) % 2
    assert purity(finer, true) >= purity(found, true)
