import numpy as np

from contracts.bank import of
from thalweg.aggregation import OneModel
from thalweg.core.talk import Asks


def test_one_model_serves_everybody():
    bank = OneModel()
    plan = bank.arrange(bank.init(9, 2), of(np.array([2, 5])), {}, 1)
    assert plan.models.tolist() == [0, 0]
    assert plan.mix.tolist() == [[1.0]]
    assert plan.is_new.tolist() == [False]
    assert bank.shares(plan.notes, 1).tolist() == [1.0]
    assert not isinstance(bank, Asks)
