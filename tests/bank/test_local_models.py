"""Banks of the baselines local-only, fine-tuned and centralised."""

import numpy as np

from thalweg.bank import Centralised, FineTuned, OneModel, OnePerClient
from thalweg.core.types import Roster


def roster_of(rnd, cohort):
    return Roster(rnd, np.arange(3), np.ones(3), np.zeros(3, int), cohort=np.array(cohort))


def test_each_client_gets_a_copy_of_the_first_model_and_then_keeps_its_own():
    bank = OnePerClient()
    first = bank.assign(bank.init(3, 2), roster_of(0, [0, 2]), {}, num_models=1)
    assert first.mix.tolist() == [[1], [1], [1]]
    assert first.clients.tolist() == first.models.tolist() == [0, 2]
    later = bank.assign(first.state, roster_of(1, [1]), {}, num_models=3)
    assert later.mix.tolist() == np.eye(3).tolist()
    assert later.models.tolist() == [1]
    assert not later.is_new.any()


def test_each_client_predicts_with_its_own_model():
    bank = OnePerClient()
    state = bank.init(3, 2)
    assert bank.mixtures(state, num_models=3).tolist() == np.eye(3).tolist()
    assert bank.shares(state, num_models=3).tolist() == [1 / 3] * 3
    assert bank.mixtures(state, num_models=1).tolist() == [[1], [1], [1]], "before the first round"


def test_one_client_has_one_model():
    bank = OnePerClient()
    assert bank.assign(bank.init(1, 2), roster_of(0, [0]), {}, num_models=1).mix.tolist() == [[1]]


def test_fine_tuned_and_centralised_train_one_model():
    for bank in (FineTuned(), Centralised()):
        ours = bank.assign(None, roster_of(0, [0, 2]), {}, num_models=1)
        theirs = OneModel().assign(None, roster_of(0, [0, 2]), {}, num_models=1)
        assert ours.mix.tolist() == theirs.mix.tolist() == [[1]]
        assert ours.models.tolist() == theirs.models.tolist() == [0, 0]
