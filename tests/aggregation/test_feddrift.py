import numpy as np
import pytest

from contracts.bank import of
from contracts.looks import FakeLook
from contracts.views import SomeView
from thalweg.aggregation import FedDrift
from thalweg.aggregation.feddrift import COSTS, SAMPLES
from thalweg.aggregation.linkage import agglomerate, distances

L = np.array([[0.2, 1.0, 0.5], [0.9, 0.3, 0.8], [0.4, 0.7, 0.25]])


def survey(losses):
    costs = np.array(losses, dtype=np.float64)
    return {COSTS: costs, SAMPLES: np.full((len(costs), 1), 10.0)}


def test_the_distances_and_the_merging_of_the_sheet():
    D = distances(L)
    assert (D[0, 1], D[0, 2], D[1, 2]) == pytest.approx((0.8, 0.3, 0.5))
    assert agglomerate(D, 0.4) == [[0, 2]]
    assert agglomerate(D, 0.9) == [[0, 1, 2]]
    assert agglomerate(D, 0.3) == []


def test_a_client_that_gets_much_worse_gets_a_model_of_its_own():
    bank, cohort = FedDrift(drift_threshold=0.5), np.array([0, 1])
    plan = bank.arrange(bank.init(3, 2), of(cohort), survey([[1.0], [1.0]]), 1)
    assert plan.models.tolist() == [0, 0]
    plan = bank.arrange(plan.notes, of(cohort), survey([[1.2], [1.6]]), 1)
    assert plan.models.tolist() == [0, 1]
    assert plan.mix.tolist() == [[1.0], [1.0]]  # the new one starts as a copy
    assert plan.is_new.tolist() == [False, True]
    assert bank.shares(plan.notes, 2).tolist() == [0.5, 0.5]


def test_models_that_do_as_well_on_each_others_data_are_merged_once_isolation_ends():
    bank, cohort = FedDrift(drift_threshold=0.5, isolation=1), np.array([0, 1])
    plan = bank.arrange(bank.init(2, 2), of(cohort), survey([[1.0], [1.0]]), 1)
    plan = bank.arrange(plan.notes, of(cohort), survey([[1.0], [2.0]]), 1)
    alike = [[1.0, 1.05], [1.2, 1.1]]
    plan = bank.arrange(plan.notes, of(cohort), survey(alike), 2)
    assert plan.models.tolist() == [0, 1]  # still left alone
    plan = bank.arrange(plan.notes, of(cohort), survey(alike), 2)
    assert plan.models.tolist() == [0, 0]
    assert plan.mix.tolist() == [[0.5, 0.5]]


def test_models_that_serve_nobody_are_closed():
    bank = FedDrift(drift_threshold=0.1, merge_threshold=0.0)
    plan = bank.arrange(bank.init(1, 2), of(np.array([0])), survey([[1.0]]), 1)
    plan = bank.arrange(plan.notes, of(np.array([0])), survey([[2.0]]), 1)
    assert plan.mix.shape == (1, 1)
    assert plan.is_new.tolist() == [True]


def test_there_is_a_limit_to_the_number_of_models():
    bank, cohort = FedDrift(drift_threshold=0.1, max_models=2), np.arange(3)
    plan = bank.arrange(bank.init(3, 2), of(cohort), survey([[1.0]] * 3), 1)
    plan = bank.arrange(plan.notes, of(cohort), survey([[1.0], [2.0], [3.0]]), 1)
    assert plan.models.tolist() == [0, 1, 0]


@pytest.mark.parametrize(("measure", "costs"), [("loss", [0.5, 2.0]), ("accuracy", [0.0, 1.0])])
def test_clients_answer_what_every_model_costs_them(measure, costs):
    class View(SomeView):
        def look(self, model=0):
            return FakeLook([], loss=[0.5, 2.0][model])

    _, answer = FedDrift(measure=measure).answer(View(num_models=2))
    assert answer[COSTS].tolist() == costs
    assert answer[SAMPLES].tolist() == [10]


def test_a_client_without_data_has_nothing_to_say():
    assert FedDrift().answer(SomeView(has_data=False)) == (None, {})


def test_a_client_without_data_stays_where_it_is():
    bank = FedDrift()
    plan = bank.arrange(bank.init(2, 2), of(np.array([0])), survey([[np.nan]]), 1)
    assert plan.models.tolist() == [0]


def test_before_anybody_was_seen_the_only_model_serves_all():
    bank = FedDrift()
    assert bank.shares(bank.init(2, 2), 1).tolist() == [1.0]


def test_if_nobody_has_anything_to_say_everybody_stays_where_they_are():
    plan = FedDrift().arrange(FedDrift().init(1, 2), of(np.array([0])), {}, 1)
    assert plan.models.tolist() == [0]


def test_a_model_opened_just_now_is_not_merged_by_what_was_there_before():
    bank, cohort = FedDrift(drift_threshold=0.1, isolation=0, max_models=2), np.arange(2)
    plan = bank.arrange(bank.init(2, 2), of(cohort), survey([[1.0], [1.0]]), 1)
    plan = bank.arrange(plan.notes, of(cohort), survey([[2.0], [1.0]]), 1)
    assert plan.models.tolist() == [1, 0]
    # Client 0 goes back to model 0, client 1 drifts and gets the place that has become free.
    plan = bank.arrange(plan.notes, of(cohort), survey([[0.5, 0.5], [3.0, 3.0]]), 2)
    assert plan.models.tolist() == [0, 1]
    assert plan.is_new.tolist() == [False, True]
