from dataclasses import replace

import numpy as np
import pytest

from contracts.bank import roster_for_cohort
from contracts.model_probes import FakeModelProbe
from contracts.rosters import roster_for
from contracts.survey_contexts import FakeSurveyContext
from thalweg.bank import FedDrift
from thalweg.bank.feddrift import BEFORE, COSTS, SAMPLES, group_models, model_distances
from thalweg.core.errors import ConfigError

L = np.array([[0.2, 1.0, 0.5], [0.9, 0.3, 0.8], [0.4, 0.7, 0.25]])


def responses_with(losses):
    costs = np.array(losses, dtype=np.float64)
    return {COSTS: costs, SAMPLES: np.full((len(costs), 1), 10.0)}


def test_distances_and_groups_of_a_worked_example():
    D = model_distances(L)
    assert (D[0, 1], D[0, 2], D[1, 2]) == pytest.approx((0.8, 0.3, 0.5))
    assert group_models(D, 0.4) == [[0, 2]]
    assert group_models(D, 0.9) == [[0, 1, 2]]
    assert group_models(D, 0.3) == []


def test_client_whose_cost_rises_above_the_threshold_gets_a_new_model():
    bank, cohort = FedDrift(drift_threshold=0.5), np.array([0, 1])
    plan = bank.assign(
        bank.init(3, 2), roster_for_cohort(cohort), responses_with([[1.0], [1.0]]), 1
    )
    assert plan.models.tolist() == [0, 0]
    plan = bank.assign(plan.state, roster_for_cohort(cohort), responses_with([[1.2], [1.6]]), 1)
    assert plan.models.tolist() == [0, 1]
    assert plan.mix.tolist() == [[1.0], [1.0]]  # the new model starts as a copy
    assert plan.is_new.tolist() == [False, True]
    assert bank.shares(plan.state, 2).tolist() == [0.5, 0.5]


def test_similar_models_are_merged_after_their_isolation():
    bank, cohort = FedDrift(drift_threshold=0.5, isolation=1), np.array([0, 1])
    plan = bank.assign(
        bank.init(2, 2), roster_for_cohort(cohort), responses_with([[1.0], [1.0]]), 1
    )
    plan = bank.assign(plan.state, roster_for_cohort(cohort), responses_with([[1.0], [2.0]]), 1)
    alike = [[1.0, 1.05], [1.2, 1.1]]
    plan = bank.assign(plan.state, roster_for_cohort(cohort), responses_with(alike), 2)
    assert plan.models.tolist() == [0, 1]  # still isolated
    plan = bank.assign(plan.state, roster_for_cohort(cohort), responses_with(alike), 2)
    assert plan.models.tolist() == [0, 0]
    assert plan.mix.tolist() == [[0.5, 0.5]]


def test_models_without_clients_are_closed():
    bank = FedDrift(drift_threshold=0.1, merge_threshold=0.0)
    plan = bank.assign(
        bank.init(1, 2), roster_for_cohort(np.array([0])), responses_with([[1.0]]), 1
    )
    plan = bank.assign(plan.state, roster_for_cohort(np.array([0])), responses_with([[2.0]]), 1)
    assert plan.mix.shape == (1, 1)
    assert plan.is_new.tolist() == [True]


def test_number_of_models_is_limited():
    bank, cohort = FedDrift(drift_threshold=0.1, max_models=2), np.arange(3)
    plan = bank.assign(bank.init(3, 2), roster_for_cohort(cohort), responses_with([[1.0]] * 3), 1)
    plan = bank.assign(
        plan.state, roster_for_cohort(cohort), responses_with([[1.0], [2.0], [3.0]]), 1
    )
    assert plan.models.tolist() == [0, 1, 0]


@pytest.mark.parametrize(("measure", "costs"), [("loss", [0.5, 2.0]), ("accuracy", [0.0, 1.0])])
def test_response_contains_the_cost_of_each_model(measure, costs):
    class TwoModels(FakeSurveyContext):
        def probe_model(self, model=0):
            return FakeModelProbe([], loss=[0.5, 2.0][model])

    _, response = FedDrift(measure=measure).answer_survey(TwoModels(num_models=2))
    assert response[COSTS].tolist() == costs
    assert response[SAMPLES].tolist() == [10]


def test_response_of_a_client_without_samples_is_empty():
    assert FedDrift().answer_survey(FakeSurveyContext(has_data=False)) == (None, {})


def test_client_without_samples_keeps_its_model():
    bank = FedDrift()
    plan = bank.assign(
        bank.init(2, 2), roster_for_cohort(np.array([0])), responses_with([[np.nan]]), 1
    )
    assert plan.models.tolist() == [0]


def test_bank_has_one_model_before_the_first_survey():
    bank = FedDrift()
    assert bank.shares(bank.init(2, 2), 1).tolist() == [1.0]


def test_clients_keep_their_model_if_there_are_no_responses():
    plan = FedDrift().assign(FedDrift().init(1, 2), roster_for_cohort(np.array([0])), {}, 1)
    assert plan.models.tolist() == [0]


def test_model_opened_in_this_round_is_not_merged():
    bank, cohort = FedDrift(drift_threshold=0.1, isolation=0, max_models=2), np.arange(2)
    plan = bank.assign(
        bank.init(2, 2), roster_for_cohort(cohort), responses_with([[1.0], [1.0]]), 1
    )
    plan = bank.assign(plan.state, roster_for_cohort(cohort), responses_with([[2.0], [1.0]]), 1)
    assert plan.models.tolist() == [1, 0]
    # Client 0 returns to model 0; client 1 drifts and gets the freed model 1.
    plan = bank.assign(
        plan.state, roster_for_cohort(cohort), responses_with([[0.5, 0.5], [3.0, 3.0]]), 2
    )
    assert plan.models.tolist() == [0, 1]
    assert plan.is_new.tolist() == [False, True]


# --- several models at the start, time steps, eager ---


def in_round(rnd, cohort, surveyed=None, **fields):
    return roster_for(rnd, cohort, num_clients=4, surveyed=surveyed, **fields)


def with_before(losses, before):
    return {**responses_with(losses), BEFORE: np.array(before, dtype=np.float64)[:, None]}


def test_first_cohort_is_assigned_to_the_initial_models_in_turn():
    bank = FedDrift(initial_models=2)
    plan = bank.assign(bank.init(4, 2), in_round(0, [0, 1, 3]), responses_with([[1.0]] * 3), 1)
    assert plan.models.tolist() == [0, 1, 0]
    assert plan.mix.tolist() == [[1.0], [0.0]]  # the second model is random
    assert plan.is_new.tolist() == [False, True]
    plan = bank.assign(plan.state, in_round(1, [0, 1]), responses_with([[1.0, 0.2], [0.9, 0.3]]), 2)
    assert plan.models.tolist() == [1, 1]  # then each client takes the best


def test_initial_models_without_clients_are_closed():
    bank = FedDrift(initial_models=3)
    plan = bank.assign(bank.init(4, 2), in_round(0, [2]), responses_with([[1.0]]), 1)
    assert plan.mix.tolist() == [[1.0]]
    assert bank.mixtures(plan.state, 1).tolist() == [[1.0]] * 4


def test_step_start_surveys_all_present_clients_and_later_rounds_only_new_ones():
    bank, rng = FedDrift(every=5), np.random.default_rng(0)
    assert bank.choose_surveyed(in_round(5, [0, 1]), rng).tolist() == [0, 1, 2, 3]
    known = {"loss": np.array([0.3, np.nan, np.nan, 0.1])}
    assert bank.choose_surveyed(replace(in_round(6, [0, 1]), known=known), rng).tolist() == [1]
    assert FedDrift(every=5, reassign=True).choose_surveyed(in_round(6, [0, 1]), rng).tolist() == [
        0,
        1,
    ]
    assert FedDrift().choose_surveyed(in_round(5, [0, 1]), rng).tolist() == [0, 1]


def test_with_steps_drift_is_measured_against_the_data_of_the_previous_step():
    bank = FedDrift(every=5, drift_threshold=0.5)
    plan = bank.assign(bank.init(4, 2), in_round(0, [0], range(4)), responses_with([[2.3]] * 4), 1)
    responses = with_before([[0.4], [1.0], [0.4], [1.0]], [0.2, 0.2, 0.2, np.nan])
    plan = bank.assign(plan.state, in_round(5, [0, 1], range(4)), responses, 1)
    assert plan.state.member_of.tolist() == [0, 1, 0, 0]  # also outside the cohort
    assert plan.models.tolist() == [0, 1]
    plan = bank.assign(plan.state, in_round(6, [1, 2], []), {}, 2)
    assert plan.models.tolist() == [1, 0]  # unchanged during the step


def test_during_a_step_no_client_drifts_and_no_models_are_merged():
    bank = FedDrift(every=5, drift_threshold=0.1, reassign=True, isolation=0)
    plan = bank.assign(
        bank.init(4, 2), in_round(0, [0, 1], range(4)), responses_with([[1.0]] * 4), 1
    )
    responses = with_before([[1.0], [5.0], [1.0], [1.0]], [1.0] * 4)
    plan = bank.assign(plan.state, in_round(5, [0, 1], range(4)), responses, 1)
    plan = bank.assign(plan.state, in_round(6, [0, 1]), responses_with([[9.0, 9.1], [9.0, 8.9]]), 2)
    assert plan.models.tolist() == [0, 1]
    plan = bank.assign(
        plan.state, in_round(10, [0, 1], [0, 1]), with_before([[9.0, 9.01]] * 2, [9.0] * 2), 2
    )
    assert plan.models.tolist() == [0, 0]


def test_isolation_is_counted_in_steps():
    bank = FedDrift(every=5, drift_threshold=0.5, isolation=1)
    plan = bank.assign(bank.init(4, 2), in_round(0, [0, 1], [0, 1]), responses_with([[1.0]] * 2), 1)
    plan = bank.assign(
        plan.state, in_round(5, [0, 1], [0, 1]), with_before([[1.0], [2.0]], [1.0] * 2), 1
    )
    for rnd in range(6, 10):
        plan = bank.assign(plan.state, in_round(rnd, [0, 1], []), {}, 2)
    alike = with_before([[1.0, 1.05], [1.2, 1.1]], [1.0] * 2)
    plan = bank.assign(plan.state, in_round(10, [0, 1], [0, 1]), alike, 2)
    assert plan.models.tolist() == [0, 1]  # still isolated
    plan = bank.assign(plan.state, in_round(15, [0, 1], [0, 1]), alike, 2)
    assert plan.models.tolist() == [0, 0]


def test_eager_clients_that_drift_together_share_a_new_model_without_merging():
    bank = FedDrift(eager=True, drift_threshold=0.5)
    plan = bank.assign(bank.init(4, 2), in_round(0, range(4)), responses_with([[1.0]] * 4), 1)
    plan = bank.assign(
        plan.state, in_round(1, range(4)), responses_with([[1.0], [2.0], [3.0], [1.1]]), 1
    )
    assert plan.models.tolist() == [0, 1, 1, 0]
    assert plan.mix.tolist() == [[1.0], [1.0]]
    alike = [[1.0, 1.01], [1.01, 1.0], [1.01, 1.0], [1.0, 1.01]]
    for rnd in range(2, 6):
        plan = bank.assign(plan.state, in_round(rnd, range(4)), responses_with(alike), 2)
        assert plan.models.tolist() == [0, 1, 1, 0]


def test_eager_copies_the_best_model_of_most_drifted_clients():
    bank = FedDrift(eager=True, initial_models=2, drift_threshold=0.5)
    plan = bank.assign(bank.init(4, 2), in_round(0, range(4)), responses_with([[1.0]] * 4), 1)
    costs = [[1.0, 9.0], [3.0, 2.0], [3.0, 2.0], [2.0, 3.0]]
    plan = bank.assign(plan.state, in_round(1, range(4)), responses_with(costs), 2)
    assert plan.mix.tolist() == [[1.0, 0.0], [0.0, 1.0]]  # the old second model has no clients
    assert plan.is_new.tolist() == [False, True]
    assert plan.models.tolist() == [0, 1, 1, 1]


def test_new_models_can_be_random():
    bank = FedDrift(new_model="random", drift_threshold=0.5)
    plan = bank.assign(bank.init(4, 2), in_round(0, [0, 1]), responses_with([[1.0]] * 2), 1)
    plan = bank.assign(plan.state, in_round(1, [0, 1]), responses_with([[1.0], [2.0]]), 1)
    assert plan.mix.tolist() == [[1.0], [0.0]]
    assert plan.is_new.tolist() == [False, True]


def test_alarm_starts_a_step_and_alarmed_clients_get_new_models():
    bank, rng = FedDrift(every=None), np.random.default_rng(0)
    assert bank.choose_surveyed(in_round(7, [0], alarmed=[0]), rng).tolist() == [0, 1, 2, 3]
    known = {"loss": np.ones(4)}
    assert (
        bank.choose_surveyed(replace(in_round(7, [0], alarmed=[1]), known=known), rng).tolist()
        == []
    )
    plan = bank.assign(
        bank.init(4, 2), in_round(0, [0, 1], range(4)), responses_with([[1.0]] * 4), 1
    )
    assert plan.models.tolist() == [0, 0]
    roster = in_round(7, [0, 1], range(4), alarmed=[1, 2])
    plan = bank.assign(plan.state, roster, responses_with([[1.0]] * 4), 1)
    assert plan.state.member_of.tolist() == [0, 1, 2, 0]


def test_model_of_an_absent_client_is_kept_for_a_hundred_rounds():
    bank = FedDrift(drift_threshold=0.5)
    plan = bank.assign(bank.init(4, 2), in_round(0, [0, 1]), responses_with([[1.0]] * 2), 1)
    plan = bank.assign(plan.state, in_round(1, [0, 1]), responses_with([[1.0], [2.0]]), 1)
    for rnd in range(2, 102):
        plan = bank.assign(plan.state, in_round(rnd, [0]), responses_with([[1.0, 3.0]]), 2)
        assert plan.mix.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    plan = bank.assign(plan.state, in_round(102, [1]), responses_with([[2.0, 0.5]]), 2)
    assert plan.models.tolist() == [1]


def test_clients_use_their_own_model_and_new_clients_all_models():
    bank = FedDrift()
    plan = bank.assign(bank.init(4, 2), in_round(0, [0, 1, 2]), responses_with([[1.0]] * 3), 1)
    plan = bank.assign(plan.state, in_round(1, [0, 1, 2]), responses_with([[1.0], [2.0], [1.0]]), 1)
    assert bank.mixtures(plan.state, 2)[:3].tolist() == [[1, 0], [0, 1], [1, 0]]
    assert bank.mixtures(plan.state, 2)[3].tolist() == pytest.approx(
        [2 / 3, 1 / 3]
    )  # never surveyed


def test_response_contains_the_cost_of_old_data_only_with_steps():
    class TwoModels(FakeSurveyContext):
        newest = np.arange(3)

        def probe_model(self, model=0):
            return FakeModelProbe([], loss=[0.5, 2.0][model])

    assert BEFORE not in FedDrift().answer_survey(TwoModels(num_models=2))[1]
    assert FedDrift(every=5).answer_survey(TwoModels(num_models=2))[1][BEFORE].tolist() == [0.5]


def test_more_initial_models_than_the_maximum_are_rejected():
    with pytest.raises(
        ConfigError, match=r"initial_models must be at most max_models \(2\), got 3"
    ):
        FedDrift(initial_models=3, max_models=2)


def test_client_that_always_raises_alarms_opens_a_bounded_number_of_models():
    bank = FedDrift(every=None, max_models=3, merge_threshold=0.0)
    plan = bank.assign(
        bank.init(4, 2), in_round(0, range(4), range(4)), responses_with([[1.0]] * 4), 1
    )
    num_models = 1
    for rnd in range(1, 12):
        roster = in_round(rnd, range(4), range(4), alarmed=[3])
        costs = [[1.0] + [2.0] * (num_models - 1)] * 4
        plan = bank.assign(plan.state, roster, responses_with(costs), num_models)
        num_models = len(plan.mix)
        assert num_models <= 3
        assert plan.state.member_of[:3].tolist() == [0, 0, 0], "the alarm acts on its own client"
