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


def survey(losses):
    costs = np.array(losses, dtype=np.float64)
    return {COSTS: costs, SAMPLES: np.full((len(costs), 1), 10.0)}


def test_the_distances_and_the_merging_of_the_sheet():
    D = model_distances(L)
    assert (D[0, 1], D[0, 2], D[1, 2]) == pytest.approx((0.8, 0.3, 0.5))
    assert group_models(D, 0.4) == [[0, 2]]
    assert group_models(D, 0.9) == [[0, 1, 2]]
    assert group_models(D, 0.3) == []


def test_a_client_that_gets_much_worse_gets_a_model_of_its_own():
    bank, cohort = FedDrift(drift_threshold=0.5), np.array([0, 1])
    plan = bank.assign(bank.init(3, 2), roster_for_cohort(cohort), survey([[1.0], [1.0]]), 1)
    assert plan.models.tolist() == [0, 0]
    plan = bank.assign(plan.notes, roster_for_cohort(cohort), survey([[1.2], [1.6]]), 1)
    assert plan.models.tolist() == [0, 1]
    assert plan.mix.tolist() == [[1.0], [1.0]]  # the new one starts as a copy
    assert plan.is_new.tolist() == [False, True]
    assert bank.shares(plan.notes, 2).tolist() == [0.5, 0.5]


def test_models_that_do_as_well_on_each_others_data_are_merged_once_isolation_ends():
    bank, cohort = FedDrift(drift_threshold=0.5, isolation=1), np.array([0, 1])
    plan = bank.assign(bank.init(2, 2), roster_for_cohort(cohort), survey([[1.0], [1.0]]), 1)
    plan = bank.assign(plan.notes, roster_for_cohort(cohort), survey([[1.0], [2.0]]), 1)
    alike = [[1.0, 1.05], [1.2, 1.1]]
    plan = bank.assign(plan.notes, roster_for_cohort(cohort), survey(alike), 2)
    assert plan.models.tolist() == [0, 1]  # still left alone
    plan = bank.assign(plan.notes, roster_for_cohort(cohort), survey(alike), 2)
    assert plan.models.tolist() == [0, 0]
    assert plan.mix.tolist() == [[0.5, 0.5]]


def test_models_that_serve_nobody_are_closed():
    bank = FedDrift(drift_threshold=0.1, merge_threshold=0.0)
    plan = bank.assign(bank.init(1, 2), roster_for_cohort(np.array([0])), survey([[1.0]]), 1)
    plan = bank.assign(plan.notes, roster_for_cohort(np.array([0])), survey([[2.0]]), 1)
    assert plan.mix.shape == (1, 1)
    assert plan.is_new.tolist() == [True]


def test_there_is_a_limit_to_the_number_of_models():
    bank, cohort = FedDrift(drift_threshold=0.1, max_models=2), np.arange(3)
    plan = bank.assign(bank.init(3, 2), roster_for_cohort(cohort), survey([[1.0]] * 3), 1)
    plan = bank.assign(plan.notes, roster_for_cohort(cohort), survey([[1.0], [2.0], [3.0]]), 1)
    assert plan.models.tolist() == [0, 1, 0]


@pytest.mark.parametrize(("measure", "costs"), [("loss", [0.5, 2.0]), ("accuracy", [0.0, 1.0])])
def test_clients_answer_what_every_model_costs_them(measure, costs):
    class View(FakeSurveyContext):
        def probe_model(self, model=0):
            return FakeModelProbe([], loss=[0.5, 2.0][model])

    _, answer = FedDrift(measure=measure).answer_survey(View(num_models=2))
    assert answer[COSTS].tolist() == costs
    assert answer[SAMPLES].tolist() == [10]


def test_a_client_without_data_has_nothing_to_say():
    assert FedDrift().answer_survey(FakeSurveyContext(has_data=False)) == (None, {})


def test_a_client_without_data_stays_where_it_is():
    bank = FedDrift()
    plan = bank.assign(bank.init(2, 2), roster_for_cohort(np.array([0])), survey([[np.nan]]), 1)
    assert plan.models.tolist() == [0]


def test_before_anybody_was_seen_the_only_model_serves_all():
    bank = FedDrift()
    assert bank.shares(bank.init(2, 2), 1).tolist() == [1.0]


def test_if_nobody_has_anything_to_say_everybody_stays_where_they_are():
    plan = FedDrift().assign(FedDrift().init(1, 2), roster_for_cohort(np.array([0])), {}, 1)
    assert plan.models.tolist() == [0]


def test_a_model_opened_just_now_is_not_merged_by_what_was_there_before():
    bank, cohort = FedDrift(drift_threshold=0.1, isolation=0, max_models=2), np.arange(2)
    plan = bank.assign(bank.init(2, 2), roster_for_cohort(cohort), survey([[1.0], [1.0]]), 1)
    plan = bank.assign(plan.notes, roster_for_cohort(cohort), survey([[2.0], [1.0]]), 1)
    assert plan.models.tolist() == [1, 0]
    # Client 0 goes back to model 0, client 1 drifts and gets the place that has become free.
    plan = bank.assign(plan.notes, roster_for_cohort(cohort), survey([[0.5, 0.5], [3.0, 3.0]]), 2)
    assert plan.models.tolist() == [0, 1]
    assert plan.is_new.tolist() == [False, True]


# --- several models at the start, time steps, eager ---


def in_round(rnd, cohort, surveyed=None, **fields):
    return roster_for(rnd, cohort, num_clients=4, surveyed=surveyed, **fields)


def with_before(losses, before):
    return {**survey(losses), BEFORE: np.array(before, dtype=np.float64)[:, None]}


def test_the_first_cohort_is_dealt_to_the_models_at_the_start():
    bank = FedDrift(initial_models=2)
    plan = bank.assign(bank.init(4, 2), in_round(0, [0, 1, 3]), survey([[1.0]] * 3), 1)
    assert plan.models.tolist() == [0, 1, 0]
    assert plan.mix.tolist() == [[1.0], [0.0]]  # the second one is drawn
    assert plan.is_new.tolist() == [False, True]
    plan = bank.assign(plan.notes, in_round(1, [0, 1]), survey([[1.0, 0.2], [0.9, 0.3]]), 2)
    assert plan.models.tolist() == [1, 1]  # then everybody takes the best


def test_fewer_clients_than_models_at_the_start_have_one_each():
    bank = FedDrift(initial_models=3)
    plan = bank.assign(bank.init(4, 2), in_round(0, [2]), survey([[1.0]]), 1)
    assert plan.mix.tolist() == [[1.0]]
    assert bank.mixtures(plan.notes, 1).tolist() == [[1.0]] * 4


def test_everybody_is_asked_as_a_step_begins_and_then_only_who_is_new():
    bank, rng = FedDrift(every=5), np.random.default_rng(0)
    assert bank.choose_surveyed(in_round(5, [0, 1]), rng).tolist() == [0, 1, 2, 3]
    known = {"loss": np.array([0.3, np.nan, np.nan, 0.1])}
    assert bank.choose_surveyed(replace(in_round(6, [0, 1]), known=known), rng).tolist() == [1]
    assert FedDrift(every=5, reassign=True).choose_surveyed(in_round(6, [0, 1]), rng).tolist() == [
        0,
        1,
    ]
    assert FedDrift().choose_surveyed(in_round(5, [0, 1]), rng).tolist() == [0, 1]


def test_with_steps_a_client_has_drifted_if_the_best_is_worse_than_on_the_last_step_s_data():
    bank = FedDrift(every=5, drift_threshold=0.5)
    plan = bank.assign(bank.init(4, 2), in_round(0, [0], range(4)), survey([[2.3]] * 4), 1)
    answers = with_before([[0.4], [1.0], [0.4], [1.0]], [0.2, 0.2, 0.2, np.nan])
    plan = bank.assign(plan.notes, in_round(5, [0, 1], range(4)), answers, 1)
    assert plan.notes.member_of.tolist() == [0, 1, 0, 0]  # also of who was not chosen
    assert plan.models.tolist() == [0, 1]
    plan = bank.assign(plan.notes, in_round(6, [1, 2], []), {}, 2)
    assert plan.models.tolist() == [1, 0]  # and so it stays while the step lasts


def test_while_a_step_lasts_nobody_drifts_and_nothing_is_merged():
    bank = FedDrift(every=5, drift_threshold=0.1, reassign=True, isolation=0)
    plan = bank.assign(bank.init(4, 2), in_round(0, [0, 1], range(4)), survey([[1.0]] * 4), 1)
    answers = with_before([[1.0], [5.0], [1.0], [1.0]], [1.0] * 4)
    plan = bank.assign(plan.notes, in_round(5, [0, 1], range(4)), answers, 1)
    plan = bank.assign(plan.notes, in_round(6, [0, 1]), survey([[9.0, 9.1], [9.0, 8.9]]), 2)
    assert plan.models.tolist() == [0, 1]
    plan = bank.assign(
        plan.notes, in_round(10, [0, 1], [0, 1]), with_before([[9.0, 9.01]] * 2, [9.0] * 2), 2
    )
    assert plan.models.tolist() == [0, 0]


def test_isolation_counts_steps():
    bank = FedDrift(every=5, drift_threshold=0.5, isolation=1)
    plan = bank.assign(bank.init(4, 2), in_round(0, [0, 1], [0, 1]), survey([[1.0]] * 2), 1)
    plan = bank.assign(
        plan.notes, in_round(5, [0, 1], [0, 1]), with_before([[1.0], [2.0]], [1.0] * 2), 1
    )
    for rnd in range(6, 10):
        plan = bank.assign(plan.notes, in_round(rnd, [0, 1], []), {}, 2)
    alike = with_before([[1.0, 1.05], [1.2, 1.1]], [1.0] * 2)
    plan = bank.assign(plan.notes, in_round(10, [0, 1], [0, 1]), alike, 2)
    assert plan.models.tolist() == [0, 1]  # still left alone
    plan = bank.assign(plan.notes, in_round(15, [0, 1], [0, 1]), alike, 2)
    assert plan.models.tolist() == [0, 0]


def test_eager_clients_that_drift_together_share_a_model_and_nothing_is_merged():
    bank = FedDrift(eager=True, drift_threshold=0.5)
    plan = bank.assign(bank.init(4, 2), in_round(0, range(4)), survey([[1.0]] * 4), 1)
    plan = bank.assign(plan.notes, in_round(1, range(4)), survey([[1.0], [2.0], [3.0], [1.1]]), 1)
    assert plan.models.tolist() == [0, 1, 1, 0]
    assert plan.mix.tolist() == [[1.0], [1.0]]
    alike = [[1.0, 1.01], [1.01, 1.0], [1.01, 1.0], [1.0, 1.01]]
    for rnd in range(2, 6):
        plan = bank.assign(plan.notes, in_round(rnd, range(4)), survey(alike), 2)
        assert plan.models.tolist() == [0, 1, 1, 0]


def test_eager_copies_the_model_that_most_of_those_who_drift_had():
    bank = FedDrift(eager=True, initial_models=2, drift_threshold=0.5)
    plan = bank.assign(bank.init(4, 2), in_round(0, range(4)), survey([[1.0]] * 4), 1)
    costs = [[1.0, 9.0], [3.0, 2.0], [3.0, 2.0], [2.0, 3.0]]
    plan = bank.assign(plan.notes, in_round(1, range(4)), survey(costs), 2)
    assert plan.mix.tolist() == [[1.0, 0.0], [0.0, 1.0]]  # the old second model serves nobody
    assert plan.is_new.tolist() == [False, True]
    assert plan.models.tolist() == [0, 1, 1, 1]


def test_a_new_model_may_be_drawn():
    bank = FedDrift(new_model="random", drift_threshold=0.5)
    plan = bank.assign(bank.init(4, 2), in_round(0, [0, 1]), survey([[1.0]] * 2), 1)
    plan = bank.assign(plan.notes, in_round(1, [0, 1]), survey([[1.0], [2.0]]), 1)
    assert plan.mix.tolist() == [[1.0], [0.0]]
    assert plan.is_new.tolist() == [False, True]


def test_an_alarm_may_begin_a_step():
    bank, rng = FedDrift(every=None), np.random.default_rng(0)
    assert bank.choose_surveyed(in_round(7, [0], alarmed=[0]), rng).tolist() == [0, 1, 2, 3]
    known = {"loss": np.ones(4)}
    assert (
        bank.choose_surveyed(replace(in_round(7, [0], alarmed=[1]), known=known), rng).tolist()
        == []
    )
    plan = bank.assign(bank.init(4, 2), in_round(0, [0, 1], range(4)), survey([[1.0]] * 4), 1)
    assert plan.models.tolist() == [0, 0]
    roster = in_round(7, [0, 1], range(4), alarmed=[1, 2])
    plan = bank.assign(plan.notes, roster, survey([[1.0]] * 4), 1)
    assert plan.notes.member_of.tolist() == [0, 1, 2, 0], "who was alarmed gets a model of its own"


def test_a_model_whose_clients_are_away_for_a_hundred_rounds_waits_for_them():
    bank = FedDrift(drift_threshold=0.5)
    plan = bank.assign(bank.init(4, 2), in_round(0, [0, 1]), survey([[1.0]] * 2), 1)
    plan = bank.assign(plan.notes, in_round(1, [0, 1]), survey([[1.0], [2.0]]), 1)
    for rnd in range(2, 102):
        plan = bank.assign(plan.notes, in_round(rnd, [0]), survey([[1.0, 3.0]]), 2)
        assert plan.mix.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    plan = bank.assign(plan.notes, in_round(102, [1]), survey([[2.0, 0.5]]), 2)
    assert plan.models.tolist() == [1]


def test_everybody_uses_the_model_they_belong_to():
    bank = FedDrift()
    plan = bank.assign(bank.init(4, 2), in_round(0, [0, 1, 2]), survey([[1.0]] * 3), 1)
    plan = bank.assign(plan.notes, in_round(1, [0, 1, 2]), survey([[1.0], [2.0], [1.0]]), 1)
    assert bank.mixtures(plan.notes, 2)[:3].tolist() == [[1, 0], [0, 1], [1, 0]]
    assert bank.mixtures(plan.notes, 2)[3].tolist() == pytest.approx([2 / 3, 1 / 3])  # never seen


def test_clients_answer_what_the_last_step_s_data_cost_only_if_there_are_steps():
    class View(FakeSurveyContext):
        newest = np.arange(3)

        def probe_model(self, model=0):
            return FakeModelProbe([], loss=[0.5, 2.0][model])

    assert BEFORE not in FedDrift().answer_survey(View(num_models=2))[1]
    assert FedDrift(every=5).answer_survey(View(num_models=2))[1][BEFORE].tolist() == [0.5]


def test_more_models_at_the_start_than_there_may_be_are_refused():
    with pytest.raises(
        ConfigError, match=r"initial_models must be at most max_models \(2\), got 3"
    ):
        FedDrift(initial_models=3, max_models=2)
