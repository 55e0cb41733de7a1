import numpy as np

from contracts.bank import roster_for_cohort
from thalweg.bank import OneModel
from thalweg.core.capabilities import Surveys


def test_one_model_assigns_the_same_model_to_all_clients():
    bank = OneModel()
    plan = bank.assign(bank.init(9, 2), roster_for_cohort(np.array([2, 5])), {}, 1)
    assert plan.models.tolist() == [0, 0]
    assert plan.mix.tolist() == [[1.0]]
    assert plan.is_new.tolist() == [False]
    assert bank.shares(plan.state, 1).tolist() == [1.0]
    assert not isinstance(bank, Surveys)
