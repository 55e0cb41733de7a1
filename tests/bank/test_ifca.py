import numpy as np
import pytest

from contracts.bank import roster_for_cohort
from contracts.survey_contexts import FakeSurveyContext
from engine.recipe_runs import play, reference, small_plan
from thalweg.bank import Ifca
from thalweg.bank.ifca import LOSSES
from thalweg.core.errors import ConfigError


def assign(bank, state, cohort, losses):
    losses = np.array(losses, dtype=np.float64)
    roster = roster_for_cohort(np.array(cohort))
    return bank.assign(state, roster, {LOSSES: losses}, losses.shape[1])


def test_each_client_trains_the_model_with_its_smallest_loss():
    bank = Ifca(models=3)
    plan = assign(bank, bank.init(6, 2), [0, 2, 5], [[3, 1, 2], [0.5, 2, 0.6], [2, 2, 2]])
    assert plan.models.tolist() == [1, 0, 0]  # of equal losses the first
    assert plan.mix.tolist() == np.eye(3).tolist()
    assert not plan.is_new.any()
    plan = assign(bank, plan.state, [0], [[3, 4, 2]])
    assert plan.models.tolist() == [2]  # clients may change their model in each round
    assert plan.state.member_of.tolist() == [2, -1, 0, -1, -1, 0]
    assert bank.shares(plan.state, 3) == pytest.approx([2 / 3, 0, 1 / 3])


def test_clients_without_a_response_keep_their_model_or_get_the_first():
    bank = Ifca(models=2)
    plan = assign(bank, bank.init(6, 2), [0], [[2, 1]])
    plan = assign(bank, plan.state, [0, 1], [[np.nan, np.nan], [np.nan, np.nan]])
    assert plan.models.tolist() == [1, 0]


def test_clients_without_a_model_are_evaluated_with_the_models_by_their_shares():
    bank = Ifca(models=2)
    plan = assign(bank, bank.init(6, 2), [0, 1, 2, 3], [[1, 2], [1, 2], [1, 2], [2, 1]])
    mixtures = bank.mixtures(plan.state, 2)
    assert mixtures[[0, 3, 4]].tolist() == [[1, 0], [0, 1], [0.75, 0.25]]


def test_a_response_has_the_mean_loss_of_each_model():
    view = FakeSurveyContext(num_models=3)
    response = Ifca(models=3).answer_survey(view)[1]
    expected = [view.probe_model(model).losses(view.newest).mean() for model in range(3)]
    assert response[LOSSES] == pytest.approx(expected)
    assert Ifca().answer_survey(FakeSurveyContext(has_data=False))[1] == {}


def test_all_models_exist_before_the_first_survey_and_differ():
    plan = small_plan("ifca", "bank.models=3")
    server, history = play(plan, reference(plan), rounds=1)
    assert server.bank.shape[0] == len(server.rules) == server.num_drawn_models == 3
    assert len(np.unique(server.bank, axis=0)) == 3
    # Surveyed clients receive the three models, and no model again for training.
    assert history[0].bytes_down == len(np.unique(history[0].clients)) * server.bank.nbytes


def test_a_bank_without_models_is_rejected():
    with pytest.raises(ConfigError, match="models must be at least 1"):
        Ifca(models=0)
