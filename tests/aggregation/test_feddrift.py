import numpy as np
import pytest

from thalweg.aggregation import FedDrift
from thalweg.aggregation.feddrift import agglomerate, distances
from thalweg.core.errors import ConfigError
from thalweg.core.types import Survey

L = np.array([[0.2, 1.0, 0.5], [0.9, 0.3, 0.8], [0.4, 0.7, 0.25]])


def survey(losses):
    losses = np.array(losses, dtype=np.float64)
    return Survey(losses, 1 - losses, np.full(len(losses), 10))


def test_the_distances_and_the_merging_of_the_sheet():
    D = distances(L)
    assert (D[0, 1], D[0, 2], D[1, 2]) == pytest.approx((0.8, 0.3, 0.5))
    assert agglomerate(D, 0.4) == [[0, 2]]
    assert agglomerate(D, 0.9) == [[0, 1, 2]]
    assert agglomerate(D, 0.3) == []


def test_a_client_that_gets_much_worse_gets_a_model_of_its_own():
    bank, cohort = FedDrift(drift_threshold=0.5), np.array([0, 1])
    plan = bank.arrange(bank.init(3), cohort, survey([[1.0], [1.0]]), 1)
    assert plan.models.tolist() == [0, 0]
    plan = bank.arrange(plan.notes, cohort, survey([[1.2], [1.6]]), 1)
    assert plan.models.tolist() == [0, 1]
    assert plan.mix.tolist() == [[1.0], [1.0]]  # the new one starts as a copy
    assert plan.is_new.tolist() == [False, True]
    assert bank.shares(plan.notes, 2).tolist() == [0.5, 0.5]


def test_models_that_do_as_well_on_each_others_data_are_merged_once_isolation_ends():
    bank, cohort = FedDrift(drift_threshold=0.5, isolation=1), np.array([0, 1])
    plan = bank.arrange(bank.init(2), cohort, survey([[1.0], [1.0]]), 1)
    plan = bank.arrange(plan.notes, cohort, survey([[1.0], [2.0]]), 1)
    alike = [[1.0, 1.05], [1.2, 1.1]]
    plan = bank.arrange(plan.notes, cohort, survey(alike), 2)
    assert plan.models.tolist() == [0, 1]  # still left alone
    plan = bank.arrange(plan.notes, cohort, survey(alike), 2)
    assert plan.models.tolist() == [0, 0]
    assert plan.mix.tolist() == [[0.5, 0.5]]


def test_models_that_serve_nobody_are_closed():
    bank = FedDrift(drift_threshold=0.1, merge_threshold=0.0)
    plan = bank.arrange(bank.init(1), np.array([0]), survey([[1.0]]), 1)
    plan = bank.arrange(plan.notes, np.array([0]), survey([[2.0]]), 1)
    assert plan.mix.shape == (1, 1)
    assert plan.is_new.tolist() == [True]


def test_there_is_a_limit_to_the_number_of_models():
    bank, cohort = FedDrift(drift_threshold=0.1, max_models=2), np.arange(3)
    plan = bank.arrange(bank.init(3), cohort, survey([[1.0]] * 3), 1)
    plan = bank.arrange(plan.notes, cohort, survey([[1.0], [2.0], [3.0]]), 1)
    assert plan.models.tolist() == [0, 1, 0]


def test_accuracies_can_be_the_measure():
    bank, cohort = FedDrift(measure="accuracy", drift_threshold=0.1), np.array([0, 1])
    plan = bank.arrange(bank.init(2), cohort, survey([[0.2], [0.2]]), 1)  # accuracy 0.8
    plan = bank.arrange(plan.notes, cohort, survey([[0.25], [0.35]]), 1)
    assert plan.models.tolist() == [0, 1]


def test_a_client_without_data_stays_where_it_is():
    bank = FedDrift()
    plan = bank.arrange(bank.init(2), np.array([0]), survey([[np.nan]]), 1)
    assert plan.models.tolist() == [0]


def test_before_anybody_was_seen_the_only_model_serves_all():
    bank = FedDrift()
    assert bank.shares(bank.init(2), 1).tolist() == [1.0]


def test_without_a_survey_it_says_so():
    with pytest.raises(ConfigError, match="needs a survey"):
        FedDrift().arrange(FedDrift().init(1), np.array([0]), None, 1)


def test_a_model_opened_just_now_is_not_merged_by_what_was_there_before():
    bank, cohort = FedDrift(drift_threshold=0.1, isolation=0, max_models=2), np.arange(2)
    plan = bank.arrange(bank.init(2), cohort, survey([[1.0], [1.0]]), 1)
    plan = bank.arrange(plan.notes, cohort, survey([[2.0], [1.0]]), 1)
    assert plan.models.tolist() == [1, 0]
    # Client 0 goes back to model 0, client 1 drifts and gets the place that has become free.
    plan = bank.arrange(plan.notes, cohort, survey([[0.5, 0.5], [3.0, 3.0]]), 2)
    assert plan.models.tolist() == [0, 1]
    assert plan.is_new.tolist() == [False, True]
