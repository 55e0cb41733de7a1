import numpy as np
import pytest

from contracts.rosters import roster_for
from thalweg.bank import FedRc, SplitContext
from thalweg.bank.soft import BEGAN, MASS, PRIORS, SINCE, MixtureState
from thalweg.core.errors import ConfigError

LOSSES = np.array([[0.2, 1.5], [1.2, 0.3]], dtype=np.float32)  # (models, samples)


def split(losses=LOSSES, labels=(0, 1), since=(0, 0), rnd=0):
    losses = np.asarray(losses, dtype=np.float32)
    return SplitContext(np.arange(len(losses)), losses, np.array(labels), np.array(since), rnd)


def received(plan, row=0):
    """Return what one client of the cohort receives, in single precision as on a network."""
    return {name: words[row].astype(np.float32) for name, words in plan.broadcast.items()}


def test_first_round_adds_random_models_to_the_initial_one():
    bank = FedRc(num_models=3)
    plan = bank.assign(bank.init(6, 2), roster_for(0, [1, 4]), {}, 1)
    assert plan.mix.tolist() == [[1.0], [0.0], [0.0]]
    assert plan.is_new.tolist() == [False, True, True]
    assert plan.clients.tolist() == [1, 1, 1, 4, 4, 4]
    assert plan.models.tolist() == [0, 1, 2, 0, 1, 2]
    again = bank.assign(plan.state, roster_for(1, [0]), {}, 3)
    assert again.mix.tolist() == np.eye(3).tolist()
    assert not again.is_new.any()


def test_two_em_steps_of_a_worked_example():
    bank, roster = FedRc(), roster_for(0, [0], num_clients=2)
    plan = bank.assign(bank.init(2, 2), roster, {}, 1)
    assert plan.broadcast[PRIORS].tolist() == [[0.5] * 4]  # nothing known yet: uniform
    kept, weights = bank.split_samples(bank.init_split(2), split(), received(plan))
    np.testing.assert_allclose(weights.T, [[0.731059, 0.268941], [0.231475, 0.768525]], atol=1e-6)
    np.testing.assert_allclose(kept.mixture, [0.481267, 0.518733], atol=1e-6)
    uploads = {name: words[None] for name, words in bank.upload(kept).items()}
    state = bank.collect(plan.state, np.array([0]), uploads)
    plan = bank.assign(state, roster, {}, 2)
    np.testing.assert_allclose(
        plan.broadcast[PRIORS][0], [0.759515, 0.240485, 0.259229, 0.740771], atol=1e-6
    )
    kept, weights = bank.split_samples(kept, split(), received(plan))
    np.testing.assert_allclose(weights.T, [[0.462586, 0.537414]] * 2, atol=1e-6)
    np.testing.assert_allclose(
        bank.mixtures(state, 2), [[0.481267, 0.518733], [0.5, 0.5]], atol=1e-6
    )
    np.testing.assert_allclose(bank.shares(state, 2), [0.490634, 0.509367], atol=1e-6)


def test_label_priors_include_the_last_uploads_of_absent_clients():
    bank = FedRc()
    state = bank.init(2, 2)
    state = bank.collect(state, np.array([0]), {MASS: np.array([[3, 0, 0, 0]], dtype=np.float32)})
    state = bank.collect(state, np.array([1]), {MASS: np.array([[0, 1, 2, 2]], dtype=np.float32)})
    broadcast = bank.assign(state, roster_for(5, [1], num_clients=2), {}, 2).broadcast[PRIORS]
    np.testing.assert_allclose(broadcast, [[0.75, 0.25, 0.5, 0.5]], atol=1e-6)


def test_hard_prediction_uses_the_largest_component_only():
    bank = FedRc(prediction="hard")
    state = bank.init(2, 1)
    state = bank.collect(state, np.array([1]), {MASS: np.array([[1, 9]], dtype=np.float32)})
    assert bank.mixtures(state, 2).tolist() == [[0.5, 0.5], [0.0, 1.0]]
    assert FedRc().mixtures(state, 2)[1].tolist() == pytest.approx([0.1, 0.9])
    assert (
        bank.main_model(
            MixtureState(0, np.array([0.1, 0.9]), np.zeros((2, 1), np.float32)), np.arange(2), {}
        )
        == 1
    )
    assert (
        bank.main_model(bank.init_split(1), np.arange(2), {}) == 0
    )  # before the client has a mixture


def test_bank_has_one_model_before_the_first_round():
    bank = FedRc()
    assert bank.shares(bank.init(3, 2), 1).tolist() == [1.0]


def test_clients_with_one_sample_and_without_samples():
    bank = FedRc()
    plan = bank.assign(bank.init(1, 2), roster_for(0, [0], num_clients=1), {}, 1)
    kept, weights = bank.split_samples(
        bank.init_split(2), split([[0.5], [0.5]], [1], [0]), received(plan)
    )
    assert weights.tolist() == [[0.5], [0.5]]
    none = split(np.empty((2, 0)), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    after, weights = bank.split_samples(kept, none, received(plan))
    assert weights.shape == (2, 0)
    assert after.mixture.tolist() == kept.mixture.tolist()  # no samples: unchanged
    state = bank.collect(plan.state, np.array([0]), {MASS: bank.upload(after)[MASS][None]})
    assert bank.mixtures(state, 2).tolist() == [[0.5, 0.5]]


def test_model_unused_for_a_hundred_rounds_can_regain_weight():
    bank, kept = FedRc(), FedRc().init_split(2)
    broadcast = {PRIORS: np.full(4, 0.5, np.float32), SINCE: np.zeros(1, np.float32)}
    broadcast[BEGAN] = np.zeros(1, np.float32)
    for rnd in range(100):
        kept, _ = bank.split_samples(kept, split([[0.1, 0.1], [9.0, 9.0]], rnd=rnd), broadcast)
    assert kept.mixture[1] < 2e-8
    for rnd in range(12):
        kept, weights = bank.split_samples(
            kept, split([[3.0, 3.0], [0.5, 0.5]], rnd=rnd), broadcast
        )
    assert kept.mixture[1] > 0.99
    assert (weights[1] > 0.99).all()


def test_invalid_fields_are_rejected():
    with pytest.raises(ConfigError, match="num_models must be at least 1"):
        FedRc(num_models=0)
    with pytest.raises(ConfigError, match="prediction"):
        FedRc(prediction="soft")
