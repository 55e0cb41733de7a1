import numpy as np
import pytest

from contracts.rosters import roster_for
from thalweg.bank import Oracle, SplitContext
from thalweg.bank.soft import SINCE
from thalweg.core.errors import ConfigError


def test_clients_train_the_model_of_their_concept():
    bank = Oracle()
    plan = bank.assign(
        bank.init(4, 2), roster_for(0, [0, 1, 3], num_clients=4, concepts=[2, 5, 2, 5]), {}, 1
    )
    assert plan.mix.tolist() == [[1.0], [0.0]]  # the initial model and a random one
    assert plan.is_new.tolist() == [False, True]
    assert plan.models.tolist() == [0, 1, 1]
    assert bank.mixtures(plan.state, 2).tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]
    assert bank.shares(plan.state, 2).tolist() == [0.5, 0.5]


def test_drifted_clients_train_on_samples_since_the_drift_and_others_on_all():
    bank = Oracle()
    plan = bank.assign(
        bank.init(2, 2), roster_for(0, [0, 1], num_clients=2, concepts=[0, 0]), {}, 1
    )
    assert plan.broadcast[SINCE].tolist() == [[0.0], [0.0]]
    plan = bank.assign(plan.state, roster_for(40, [0, 1], num_clients=2, concepts=[0, 1]), {}, 1)
    assert plan.broadcast[SINCE].tolist() == [[0.0], [40.0]]
    split = SplitContext(
        np.array([1]), np.zeros((1, 3), np.float32), np.zeros(3, int), np.array([0, 39, 40]), 40
    )
    received = {SINCE: np.array([40.0], dtype=np.float32)}
    assert bank.split_samples(None, split, received)[1].tolist() == [[0.0, 0.0, 1.0]]


def test_drift_of_a_client_outside_the_cohort_is_recorded():
    bank = Oracle()
    plan = bank.assign(bank.init(2, 2), roster_for(0, [0], num_clients=2, concepts=[0, 0]), {}, 1)
    plan = bank.assign(plan.state, roster_for(1, [0], num_clients=2, concepts=[0, 1]), {}, 1)
    plan = bank.assign(plan.state, roster_for(2, [1], num_clients=2, concepts=[0, 1]), {}, 2)
    assert plan.broadcast[SINCE].tolist() == [[1.0]]
    assert plan.models.tolist() == [1]


def test_returning_concept_continues_with_its_model_after_a_hundred_rounds():
    bank = Oracle()
    plan = bank.assign(bank.init(1, 2), roster_for(0, [0], num_clients=1, concepts=[3]), {}, 1)
    for rnd in range(1, 101):
        plan = bank.assign(
            plan.state, roster_for(rnd, [0], num_clients=1, concepts=[1]), {}, len(plan.mix)
        )
    assert plan.mix.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert bank.shares(plan.state, 2).tolist() == [0.0, 1.0]
    plan = bank.assign(plan.state, roster_for(101, [0], num_clients=1, concepts=[3]), {}, 2)
    assert plan.models.tolist() == [0]


def test_roster_without_concepts_is_rejected():
    with pytest.raises(ConfigError, match="only a simulation"):
        Oracle().assign(Oracle().init(1, 2), roster_for(0, [0], num_clients=1), {}, 1)
