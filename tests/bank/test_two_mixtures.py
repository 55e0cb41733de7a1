import math

import numpy as np
import pytest

from contracts.rosters import roster_for
from contracts.survey_contexts import FakeModelProbe, FakeSurveyContext
from thalweg.bank import SplitContext, TwoMixtures
from thalweg.bank.prototype_set import (
    CLASSES,
    ERRORS,
    NEW,
    OLD,
    SINCE,
    UNKNOWN,
    client_prototypes,
    read_prototypes,
)
from thalweg.bank.two_mixtures import (
    BEGAN,
    LEAST_LOSSES,
    LOSSES,
    MASS,
    PRIORS,
)
from thalweg.bank.two_mixtures import NEW as NEW_MIXTURE
from thalweg.bank.two_mixtures import OLD as OLD_MIXTURE
from thalweg.core.claims import Claim, Delivery
from thalweg.core.errors import ConfigError
from thalweg.network.limits import Limits

ALL, NEITHER = list(range(6)), np.random.default_rng(0)


def responses_for(reversed_labels, losses, since=0, old_reversed=None, error=0.1, least=None):
    """Return the responses of clients with two classes, some of them with reversed labels.

    Prototypes are 0 and 4, with a standard error of `error`. The lower limits of the losses are 90
    % of them unless they are given.
    """
    losses = np.array(losses, dtype=float).reshape(len(reversed_labels), -1)
    rows = np.array([[[0.0], [4.0]], [[4.0], [0.0]]])
    prototypes = rows[np.array(reversed_labels, dtype=int)].reshape(len(reversed_labels), -1)
    noise = np.linspace(0, 0.1, len(prototypes))[:, None]
    has_old = np.full((len(prototypes), 2), float(old_reversed is not None))
    return {
        NEW: prototypes + noise,
        OLD: np.tile(rows[int(bool(old_reversed))].ravel(), (len(prototypes), 1)) * has_old,
        OLD + CLASSES: has_old,
        NEW + CLASSES: np.ones((len(prototypes), 2)),
        NEW + ERRORS: np.full((len(prototypes), 2), error),
        OLD + ERRORS: np.where(has_old > 0, error, UNKNOWN),
        SINCE: np.full((len(prototypes), 1), float(since)),
        LOSSES: losses,
        LEAST_LOSSES: 0.9 * losses if least is None else np.full(losses.shape, least),
    }


def start(bank=None):
    bank = bank or TwoMixtures()
    plan = bank.assign(
        bank.init(6, 2), roster_for(0, ALL), responses_for([0] * 6, [0.7] * 6), num_models=1
    )
    return bank, plan


def drift(bank, plan, *, rnd=30, alarmed=(4, 5)):
    """Clients 4 and 5 have reversed labels, and the only model has a large loss there."""
    roster = roster_for(rnd, ALL, alarmed=alarmed)
    responses = responses_for([0, 0, 0, 0, 1, 1], [0.1] * 4 + [6.0] * 2, rnd)
    return bank.assign(plan.state, roster, responses, num_models=1)


def upload(bank, plan, masses):
    """Collect (K, 2, models) sums of responsibilities, equal for both labels."""
    masses = np.repeat(np.array(masses, dtype=np.float32)[..., None] / 2, 2, axis=3)
    clients = np.unique(plan.clients)
    return bank.collect(plan.state, clients, {MASS: masses.reshape(len(clients), -1)})


def test_without_contradictions_there_is_one_model_and_nothing_is_sent():
    bank, plan = start()
    assert plan.mix.tolist() == [[1.0]]
    assert (plan.clients.tolist(), plan.models.tolist()) == (ALL, [0] * 6)
    assert plan.broadcast == {}
    assert bank.extra_metrics(plan.state, roster_for(0, ALL)) == {}
    kept, weights = bank.split_samples(
        bank.init_split(2),
        SplitContext(np.array([0]), np.zeros((1, 3), np.float32), np.arange(3) % 2, ALL[:3], 0),
        {},
    )
    assert weights.tolist() == [[1.0, 1.0, 1.0]]
    assert bank.upload(kept) == {}


def test_survey_of_the_cohort_at_alarms_and_in_rounds_with_doubling_distances():
    bank, plan = start()
    for rnd, alarmed, expected in ((0, [], [1, 2]), (7, [], []), (7, [2], [1, 2]), (7, [3], [])):
        roster = roster_for(rnd, [1, 2], alarmed=alarmed)
        assert bank.choose_surveyed(roster, NEITHER).tolist() == expected
    watched = [r for r in range(20) if len(bank.find_watched(plan.state, roster_for(r, [1, 2])))]
    assert watched == [1, 2, 4, 8, 16]
    drifted = drift(bank, plan, rnd=30).state
    assert [r for r in range(30, 40) if len(bank.find_watched(drifted, roster_for(r, [1])))] == [
        *(31, 32, 34, 38)
    ]


def test_clients_that_were_absent_are_surveyed_in_their_first_round_after_an_alarm():
    bank, plan = start()
    roster = roster_for(30, [0, 4, 5], alarmed=[4], num_clients=6)
    responses = responses_for([0, 1, 1], [0.1, 6.0, 6.0], 30)
    state = bank.assign(plan.state, roster, responses, num_models=1).state
    assert bank.find_watched(state, roster_for(33, [0, 1, 2, 5])).tolist() == [1, 2]
    roster = roster_for(33, [1, 2], num_clients=6)
    after = bank.assign(state, roster, responses_for([0, 0], [[0.1, 5]] * 2, 33), num_models=2)
    assert bank.find_watched(after.state, roster_for(35, ALL)).tolist() == [3]


def test_a_new_client_is_surveyed_if_there_are_several_models():
    bank, plan = start()
    assert (
        bank.find_watched(plan.state._replace(new=np.zeros((6, 1))), roster_for(3, [2])).size == 0
    )
    state = drift(bank, plan, rnd=1, alarmed=()).state
    assert state.changed == 0, "the models were opened without an alarm"
    new = state.new.copy()
    new[3] = 0
    assert bank.find_watched(state._replace(new=new), roster_for(3, ALL)).tolist() == [3]


def test_contradictory_clients_get_a_copy_of_the_model():
    bank, plan = start()
    plan = drift(bank, plan)
    assert plan.mix.tolist() == [[1.0], [1.0]]
    assert plan.is_new.tolist() == [False, True]
    state = plan.state
    np.testing.assert_allclose(state.new[[0, 4]], [[1, 0], [0.05, 0.95]])
    assert state.old[[0, 4]].tolist() == [[0, 0], [1, 0]], "old samples keep the old mixture"
    assert state.began.tolist() == [0, 0, 0, 0, 30, 30]
    jobs = list(zip(plan.clients.tolist(), plan.models.tolist(), strict=True))
    assert jobs == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (4, 1), (5, 0), (5, 1)]
    (decision,) = bank.extra_metrics(state, roster_for(30, ALL))["decisions"]
    assert (decision["what"], decision["model"], decision["clients"]) == ("open-model", 1, 2)
    assert decision["reason"] == (
        "the labels of 2 clients contradict those of other clients; the loss of model 0 on their "
        "new samples is 6.00"
    )


def test_one_model_that_fits_all_clients_is_sufficient():
    bank, plan = start()
    roster = roster_for(30, ALL, alarmed=[4, 5])
    responses = responses_for([0, 0, 0, 0, 1, 1], [0.1] * 4 + [0.4] * 2, 30)
    plan = bank.assign(plan.state, roster, responses, num_models=1)
    assert len(plan.mix) == 1, "the largest loss is at most sufficient_loss"
    assert plan.state.began.tolist() == [0, 0, 0, 0, 30, 30], "alarms start periods nevertheless"


def test_if_all_clients_change_their_labels_old_samples_stay_with_the_old_model():
    bank, plan = start()
    roster = roster_for(30, ALL, alarmed=ALL)
    same = bank.assign(plan.state, roster, responses_for([1] * 6, [6.0] * 6, 30, True), 1)
    assert len(same.mix) == 1, "a large loss alone opens no model"
    plan = bank.assign(plan.state, roster, responses_for([1] * 6, [6.0] * 6, 30, False), 1)
    assert len(plan.mix) == 2, "6 is above ln 2 + sufficient_loss, the cost of a new model"
    assert "contradict those of old samples" in plan.state.decisions[0]["reason"]
    assert plan.state.new.argmax(axis=1).tolist() == [1] * 6
    assert plan.state.old.argmax(axis=1).tolist() == [0] * 6


def test_a_moderate_loss_of_all_clients_opens_no_model():
    bank, plan = start()
    roster = roster_for(30, ALL, alarmed=ALL)
    plan = bank.assign(plan.state, roster, responses_for([1] * 6, [1.0] * 6, 30, False), 1)
    assert len(plan.mix) == 1, "1.0 is below ln 2 + sufficient_loss"


def test_clusters_are_matched_with_existing_models():
    bank, plan = start()
    plan = drift(bank, plan)
    state = upload(bank, plan, [[[9, 0], [0, 0]]] * 4 + [[[0, 9], [9, 0]]] * 2)
    roster = roster_for(60, ALL, alarmed=[0])
    losses = [[6.0, 0.2], *[[0.1, 6.0]] * 3, *[[6.0, 0.2]] * 2]
    plan = bank.assign(state, roster, responses_for([1, 0, 0, 0, 1, 1], losses, 60), num_models=2)
    assert len(plan.mix) == 2
    assert plan.state.new.argmax(axis=1).tolist() == [1, 0, 0, 0, 1, 1]
    np.testing.assert_allclose(plan.state.new[0], [0.05, 0.95])
    assert plan.state.began.tolist() == [60, 0, 0, 0, 30, 30]


def test_a_client_in_another_cluster_starts_a_period_without_an_alarm():
    bank, plan = start()
    plan = drift(bank, plan)
    state = upload(bank, plan, [[[9, 0], [0, 0]]] * 4 + [[[0, 9], [9, 0]]] * 2)
    losses = [[6.0, 0.2], *[[0.1, 6.0]] * 3, *[[6.0, 0.2]] * 2]
    responses = responses_for([1, 0, 0, 0, 1, 1], losses, 38)
    plan = bank.assign(state, roster_for(38, ALL, alarmed=[]), responses, num_models=2)
    assert plan.state.began.tolist() == [38, 0, 0, 0, 30, 30]
    assert plan.state.old[0].tolist() == [1, 0]


def test_a_new_model_is_not_replaced_while_it_learns():
    bank, plan = start()
    plan = drift(bank, plan, rnd=30)
    state = upload(bank, plan, [[[9, 0], [0, 0]]] * 4 + [[[0, 9], [9, 0]]] * 2)
    losses = [[0.1, 6.0]] * 4 + [[6.0, 5.0]] * 2
    for rnd, num_models in ((31, 2), (34, 2), (38, 3)):
        responses = responses_for([0, 0, 0, 0, 1, 1], losses, rnd)
        after = bank.assign(state, roster_for(rnd, ALL, alarmed=[]), responses, num_models=2)
        assert len(after.mix) == num_models, f"round {rnd}; patience ends in round 35"


def test_clients_train_models_with_a_relevant_share_only():
    bank, plan = start()
    plan = drift(bank, plan)
    masses = [[[99, 1], [0, 0]]] * 4 + [[[1, 9], [0, 0]], [[0, 9], [1, 1]]]
    plan = bank.assign(upload(bank, plan, masses), roster_for(31, ALL, alarmed=[]), {}, 2)
    jobs = list(zip(plan.clients.tolist(), plan.models.tolist(), strict=True))
    assert jobs == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (4, 1), (5, 0), (5, 1)]
    np.testing.assert_allclose(plan.broadcast[NEW_MIXTURE][[0, 4]], [[1, 0], [0.1, 0.9]])
    assert plan.broadcast[OLD_MIXTURE][[4, 5]].tolist() == [[0, 0], [0.5, 0.5]]
    np.testing.assert_allclose(bank.mixtures(plan.state, 2)[0], [0.99, 0.01])


def test_unused_models_are_closed():
    bank, plan = start(TwoMixtures(unused_rounds=10))
    plan = drift(bank, plan, rnd=30)
    state = upload(bank, plan, [[[9, 0], [0, 0]]] * 6)
    for rnd in range(31, 41):
        plan = bank.assign(state, roster_for(rnd, ALL, alarmed=[]), {}, num_models=2)
        assert len(plan.mix) == (2 if rnd < 40 else 1)
        state = plan.state
    assert plan.mix.tolist() == [[1.0, 0.0]]
    assert state.new.tolist() == [[1.0]] * 6
    (decision,) = bank.extra_metrics(state, roster_for(40, ALL))["decisions"]
    assert decision["what"] == "close-model"
    assert decision["reason"] == "no client has used it for 10 rounds"


def test_in_time_steps_periods_begin_with_the_step():
    bank, plan = start(TwoMixtures(every=5))
    plan = bank.assign(plan.state, roster_for(6, [0, 1]), {}, num_models=1)
    assert plan.state.began.tolist() == [5] * 6
    assert plan.state.changed == 5
    assert bank.choose_surveyed(roster_for(5, [0, 1]), NEITHER).tolist() == [0, 1]
    assert bank.choose_surveyed(roster_for(6, [0, 1], alarmed=[0]), NEITHER).tolist() == []


def test_a_full_bank_opens_no_model():
    bank, plan = start(TwoMixtures(max_models=1))
    plan = drift(bank, plan)
    assert len(plan.mix) == 1
    assert plan.models.tolist() == [0] * 6


def received(new, old, began):
    num_models = len(new)
    return {
        NEW_MIXTURE: np.array(new, dtype=np.float32),
        OLD_MIXTURE: np.array(old, dtype=np.float32),
        BEGAN: np.array([began], dtype=np.float32),
        PRIORS: np.full(2 * num_models, 0.5, dtype=np.float32),
    }


def test_old_and_new_samples_have_their_own_mixtures():
    """With equal losses, the responsibilities are the mixtures; shares below 0.05 are left out."""
    bank = TwoMixtures()
    split = SplitContext(
        models=np.array([0, 2]),
        losses=np.ones((2, 4), dtype=np.float32),
        labels=np.array([0, 1, 1, 1]),
        since=np.array([8, 8, 30, 31]),
        rnd=31,
    )
    message = received([0.25, 0, 0.75], [1.0, 0, 0], 30)
    kept, weights = bank.split_samples(bank.init_split(2), split, message)
    np.testing.assert_allclose(weights, [[1, 1, 0.25, 0.25], [0, 0, 0.75, 0.75]])
    mass = bank.upload(kept)[MASS].reshape(2, 3, 2)
    np.testing.assert_allclose(mass[0], [[0, 0.5], [0, 0], [0, 1.5]], err_msg="new samples")
    np.testing.assert_allclose(mass[1], [[1, 1], [0, 0], [0, 0]], err_msg="old samples")
    assert bank.main_model(kept, split.models, message) == 1, "the model with index 2"
    message = received([0.04, 0, 0.96], [1.0, 0, 0], 30)
    assert bank.split_samples(bank.init_split(2), split, message)[1][0, 2:].tolist() == [0, 0]


def test_devices_reject_mixtures_of_other_models():
    bank, message = TwoMixtures(), received([0.25, 0, 0.75], [1.0, 0, 0], 30)
    assert bank.validate_delivery(Delivery(message, 5, num_models=2, num_classes=2)) is None
    reason = bank.validate_delivery(Delivery(message, 5, num_models=3, num_classes=2))
    assert reason == "the mixtures have 2 models, but 3 were sent."
    assert bank.validate_delivery(Delivery({}, 5, num_models=1, num_classes=2)) is None
    assert "missing" in bank.validate_delivery(Delivery({}, 5, num_models=2, num_classes=2))
    assert "numbers" in bank.validate_delivery(Delivery(message, 5, num_models=2, num_classes=3))
    wrong = {**message, PRIORS: 0 * message[PRIORS]}
    assert "label_priors" in bank.validate_delivery(Delivery(wrong, 5, 2, 2))


def test_the_server_rejects_impossible_uploads():
    bank, message = TwoMixtures(), received([0.25, 0.75], [1.0, 0], 30)
    mass = {MASS: np.ones(8, dtype=np.float32)}
    assert bank.validate_claim(Claim(mass, 5, 2, message, num_samples=8)) is None
    assert "sums to 8" in bank.validate_claim(Claim(mass, 5, 2, message, num_samples=7))
    assert "not 8" in bank.validate_claim(Claim({MASS: np.ones(4)}, 5, 2, message))
    assert "no values" in bank.validate_claim(Claim(mass, 5, 1, {}))
    assert bank.validate_claim(Claim({}, 5, 1, {})) is None
    response = {name: row[0] for name, row in responses_for([0], [0.5]).items()}
    claim = Claim(response, 5, 1, num_classes=2, is_survey_response=True)
    assert bank.validate_claim(claim) is None
    for name in (LOSSES, LEAST_LOSSES):
        wrong = claim._replace(uploads={**response, name: np.array([-1.0])})
        assert bank.validate_claim(wrong).startswith(name)
    above = claim._replace(uploads={**response, LEAST_LOSSES: np.array([0.6])})
    assert bank.validate_claim(above) == "least_model_losses is above model_losses."


class TwoLosses(FakeSurveyContext):
    """Ten samples: the losses of five are 0, those of the others 2."""

    def probe_model(self, model: int = 0) -> FakeModelProbe:
        probe = super().probe_model(model)
        probe.losses = lambda rows: np.where(rows < 5, 0.0, 2.0)
        return probe


@pytest.mark.parametrize(("level", "least"), [(1.0, 1.0), (0.25, 0.766), (0.01, 0.06)])
def test_clients_report_lower_limits_of_their_losses(level, least):
    """The mean is 1, its standard error 1 / 3, and t with 9 degrees of freedom 0.703 and 2.821."""
    _, response = TwoMixtures(loss_significance=level).answer_survey(TwoLosses())
    assert response[LOSSES].tolist() == [1.0]
    assert response[LEAST_LOSSES].round(3).tolist() == [least]


def test_clients_that_never_took_part_predict_with_the_mean_mixture():
    bank = TwoMixtures()
    plan = bank.assign(bank.init(3, 2), roster_for(0, [0, 1], num_clients=3), {}, num_models=1)
    assert bank.mixtures(plan.state, 1).tolist() == [[1.0]] * 3
    state = plan.state._replace(new=np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 0.0]]))
    assert bank.mixtures(state, 2)[2].tolist() == [0.75, 0.25]
    assert bank.shares(state, 2).tolist() == [0.75, 0.25]


@pytest.mark.parametrize(
    "field, value",
    [
        ("certainty", 0.2),
        ("relevant_share", 0),
        ("every", 0),
        ("significance", 0),
        ("loss_significance", 1.1),
    ],
)
def test_fields_have_ranges(field, value):
    with pytest.raises(ConfigError, match=field):
        TwoMixtures(**{field: value})


@pytest.mark.parametrize(("error", "num_models"), [(1.0, 2), (1.2, 1)])
def test_prototypes_that_differ_by_chance_open_no_model(error, num_models):
    """The prototype (4, 0) of a client is 3.2 from the mean of the others in each class.

    The squared standard errors of the difference are error^2 (1 + 1 / 5), so that the sum of two
    ratios is above 13.8, the limit for two classes, up to an error of 1.11.
    """
    bank, plan = start()
    losses = [0.55] * 4 + [0.65] * 2  # below ln 2, the loss of equal probabilities
    responses = responses_for([0, 0, 0, 0, 1, 1], losses, 30, error=error)
    plan = bank.assign(plan.state, roster_for(30, ALL, alarmed=[4, 5]), responses, num_models=1)
    assert len(plan.mix) == num_models


def test_the_significance_is_the_level_of_the_test():
    """The sum of the ratios is 17.1 / 1.44 = 11.9; 5.99 is the limit for the level 0.05."""
    losses = [0.55] * 4 + [0.65] * 2
    responses = responses_for([0, 0, 0, 0, 1, 1], losses, 30, error=1.2)
    for level, num_models in ((0.05, 2), (0.001, 1)):
        bank, plan = start(TwoMixtures(significance=level))
        plan = bank.assign(plan.state, roster_for(30, ALL, alarmed=[4]), responses, num_models=1)
        assert len(plan.mix) == num_models


def test_losses_above_that_of_equal_probabilities_are_evidence_despite_large_errors():
    for loss, num_models in ((6.0, 2), (0.65, 1)):
        bank, plan = start()
        losses = [0.1] * 4 + [loss] * 2
        responses = responses_for([0, 0, 0, 0, 1, 1], losses, 30, error=2.0)
        plan = bank.assign(plan.state, roster_for(30, ALL, alarmed=[4]), responses, num_models=1)
        assert len(plan.mix) == num_models


def test_large_losses_of_a_few_samples_are_no_evidence():
    """The lower limit of the mean losses has to be above ln 2 = 0.69."""
    for least, num_models in ((0.7, 2), (0.68, 1)):
        bank, plan = start()
        losses = [0.1] * 4 + [6.0] * 2
        responses = responses_for([0, 0, 0, 0, 1, 1], losses, 30, error=2.0, least=least)
        plan = bank.assign(plan.state, roster_for(30, ALL, alarmed=[4]), responses, num_models=1)
        assert len(plan.mix) == num_models


def test_no_model_is_opened_for_clients_that_all_have_a_sufficient_one():
    """The mean losses of clients 4 and 5, 3.2, are above ln 2 + 0.5, the cost of a new model."""
    for loss, num_models in ((0.4, 2), (0.6, 3)):
        bank, state = opened_in_round_30()
        losses = [[0.1, 6.0]] * 4 + [[6.0, 0.4], [loss, 6.0]]
        responses = responses_for([0, 0, 0, 0, 1, 1], losses, 60)
        plan = bank.assign(state, roster_for(60, ALL, alarmed=[5]), responses, num_models=2)
        assert len(plan.mix) == num_models


def test_clients_that_all_have_large_losses_show_no_contradiction():
    """The model has learnt little so far: nobody has a much smaller loss."""
    bank, plan = start()
    losses = [2.0] * 4 + [2.4] * 2
    responses = responses_for([0, 0, 0, 0, 1, 1], losses, 30, error=2.0)
    plan = bank.assign(plan.state, roster_for(30, ALL, alarmed=[4]), responses, num_models=1)
    assert len(plan.mix) == 1


@pytest.mark.parametrize(("error", "num_models"), [(2.0, 2), (3.0, 1)])
def test_new_and_old_samples_that_differ_by_chance_open_no_model(error, num_models):
    """Differences of 4 in two classes; the squared errors are 2 error^2 / 6: 96 / error^2."""
    bank, plan = start()
    responses = responses_for([1] * 6, [6.0] * 6, 30, False, error=error)
    plan = bank.assign(plan.state, roster_for(30, ALL, alarmed=ALL), responses, num_models=1)
    assert len(plan.mix) == num_models


def test_if_no_error_is_known_no_model_is_opened():
    bank, plan = start()
    responses = responses_for([0, 0, 0, 0, 1, 1], [0.1] * 4 + [6.0] * 2, 30, error=UNKNOWN)
    plan = bank.assign(plan.state, roster_for(30, ALL, alarmed=[4]), responses, num_models=1)
    assert len(plan.mix) == 1


def opened_in_round_30():
    """Return a bank with two models, the second of clients 4 and 5."""
    bank, plan = start()
    plan = drift(bank, plan, rnd=30)
    return bank, upload(bank, plan, [[[9, 0], [0, 0]]] * 4 + [[[0, 9], [9, 0]]] * 2)


@pytest.mark.parametrize(("other", "expected"), [(2.0, 1), (0.5, 0)])
def test_a_client_takes_a_model_that_is_much_better_than_that_of_its_group(other, expected):
    """All labels agree, so that there is one group, with model 0."""
    bank, state = opened_in_round_30()
    losses = [[0.1, 6.0]] * 5 + [[other, 0.1]]
    responses = responses_for([0] * 6, losses, 60)
    plan = bank.assign(state, roster_for(60, ALL, alarmed=[5]), responses, num_models=2)
    assert plan.state.new.argmax(axis=1).tolist() == [0] * 5 + [expected]


@pytest.mark.parametrize(("loss", "expected"), [(1.0, 1), (0.4, 0)])
def test_a_new_model_is_given_up_only_for_a_sufficient_one(loss, expected):
    """Round 33 is within the patience of the model of round 30; its loss is still 3."""
    bank, state = opened_in_round_30()
    losses = [[0.1, 6.0]] * 4 + [[loss, 3.0], [6.0, 3.0]]
    responses = responses_for([0, 0, 0, 0, 1, 1], losses, 33)
    plan = bank.assign(state, roster_for(33, ALL, alarmed=[]), responses, num_models=2)
    assert len(plan.mix) == 2
    assert plan.state.new.argmax(axis=1).tolist() == [0, 0, 0, 0, expected, 1]


NAN = float("nan")


@pytest.mark.parametrize("name", [NEW + ERRORS, OLD + ERRORS])
@pytest.mark.parametrize(
    ("errors", "message"),
    [
        ([1.0, 1.0, 1.0], "has 3 numbers, not 2"),
        ([1.0], "has 1 numbers, not 2"),
        ([-0.1, 1.0], "goes from -0.1 to 1"),
        ([NAN, 1.0], "is not finite"),
        ([math.inf, 1.0], "is not finite"),
        (None, "is missing"),
    ],
)
def test_the_server_rejects_impossible_errors(name, errors, message):
    response = {key: row[0] for key, row in responses_for([0], [0.5]).items()}
    del response[name]
    if errors is not None:
        response[name] = np.array(errors)
    claim = Claim(response, 5, 1, num_classes=2, is_survey_response=True)
    assert TwoMixtures().validate_claim(claim) == f"{name} {message}" + (
        ", but only 0 to inf is possible." if "goes" in message else "."
    )


class View:
    """Samples 0 .. 3 are new and 4, 5 are held; the outputs of the model are given."""

    held, newest, rnd, num_classes = np.array([4, 5]), np.arange(4), 7, 3
    since = np.array([2, 2])
    outputs = np.array([[0.0], [2.0], [5.0], [9.0], [1.0], [4.0]])
    classes = np.array([0, 0, 1, 1, 0, 1])

    def labels(self, rows):
        return self.classes[rows]

    def probe_model(self, model):
        return FakeProbe(self.outputs)


class FakeProbe:
    def __init__(self, outputs):
        self._outputs = outputs

    def outputs(self, rows):
        return self._outputs[rows].astype(np.float32)


def test_standard_errors_of_prototypes_by_hand():
    """Squares around the means 1, 7, 1 and 4 of both groups: 2 + 8 + 0 + 0, with 6 - 4 degrees."""
    found = client_prototypes(View(), None, "logits", with_errors=True)
    assert found[NEW].tolist() == [1, 7, 0]
    assert found[OLD].tolist() == [1, 4, 0]
    variance = (2 + 8) / 2
    assert found[NEW + ERRORS] == pytest.approx([*[math.sqrt(variance / 2)] * 2, UNKNOWN])
    assert found[OLD + ERRORS] == pytest.approx([*[math.sqrt(variance)] * 2, UNKNOWN])
    assert NEW + ERRORS not in client_prototypes(View(), None, "logits")


def test_prototypes_of_several_models_are_next_to_each_other():
    class TwoModels(View):
        def probe_model(self, model):
            return FakeProbe(self.outputs * (1, 10)[model])

    found = client_prototypes(TwoModels(), None, "logits", num_models=2)
    assert found[NEW].tolist() == [1, 10, 7, 70, 0, 0]


def test_errors_of_probabilities_have_the_scale_of_the_prototypes():
    """Prototypes of probabilities are divided by their norm, so that the errors are as well."""
    view = View()
    view.outputs = np.log(np.array([[0.2, 0.8], [0.4, 0.6], [0.9, 0.1], [0.7, 0.3]]))
    view.held = view.newest
    view.since = np.full(4, 7)
    found = client_prototypes(view, None, "probabilities", with_errors=True)
    means = np.array([0.3, 0.7, 0.8, 0.2, 0, 0])
    norm = np.linalg.norm(means)
    assert found[NEW] == pytest.approx(means / norm, rel=1e-6)
    # Each sample is 0.1 from the mean in two outputs: 8 * 0.01 with two degrees of freedom.
    expected = math.sqrt(0.08 / 2 / 2) / norm
    assert found[NEW + ERRORS][:2] == pytest.approx([expected] * 2, rel=1e-6)
    assert found[OLD + ERRORS].tolist() == [UNKNOWN] * 3


def test_without_a_class_of_two_samples_errors_are_not_known():
    view = View()
    view.newest, view.held, view.since = np.array([0, 2]), np.array([0, 2]), np.array([7, 7])
    found = client_prototypes(view, None, "logits", with_errors=True)
    assert found[NEW + ERRORS].tolist() == [UNKNOWN] * 3
    assert Limits().max_value > UNKNOWN, "devices can send it"
    responses = {name: np.stack([values, values]) for name, values in found.items()}
    seen = read_prototypes(responses, roster_for(7, [0, 1], surveyed=[0, 1]), "mask")
    assert np.isnan(seen.new_errors).all()
    assert np.isnan(seen.old_errors).all()
