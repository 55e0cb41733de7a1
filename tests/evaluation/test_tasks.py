import numpy as np
import pytest

from thalweg.evaluation import ASSIGNMENTS, mixture_by_concept, mixture_by_labels


def test_one_e_step_gives_the_worked_numbers():
    losses = np.array([[0.2, 1.5], [1.2, 0.3]])
    assert mixture_by_labels(losses) == pytest.approx([0.481267, 0.518733], abs=1e-6)


def test_losses_of_hundreds_do_not_become_zero_over_zero():
    assert mixture_by_labels(np.array([[900.0], [1000.0]])) == pytest.approx([1.0, 0.0])


def test_models_that_do_equally_well_share_a_task():
    assert mixture_by_labels(np.full((4, 3), 0.7)) == pytest.approx([0.25] * 4)


def test_an_oracle_knows_what_those_of_the_concept_use():
    mixtures = np.array([[1.0, 0.0], [0.6, 0.4], [0.0, 1.0]])
    concepts = np.array([3, 3, 1])
    assert mixture_by_concept(mixtures, concepts, 3) == pytest.approx([0.8, 0.2])
    assert mixture_by_concept(mixtures, concepts, 1).tolist() == [0.0, 1.0]


def test_a_concept_that_nobody_has_now_has_no_mixture():
    assert mixture_by_concept(np.eye(2), np.array([0, 1]), 2) is None


def test_the_ways_to_find_a_mixture_have_names():
    assert ASSIGNMENTS == ("labels", "oracle")
