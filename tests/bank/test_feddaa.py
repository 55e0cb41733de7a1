import math

import numpy as np
import pytest

from contracts.rosters import roster_for
from contracts.survey_contexts import FakeSurveyContext
from thalweg.bank import FedDaa, SplitContext
from thalweg.bank.prototype_set import CLASSES, NEW, OLD, client_prototypes
from thalweg.bank.prototype_set import SINCE as NEW_SINCE
from thalweg.bank.soft import BEGAN, MASS, PRIORS, SINCE
from thalweg.core.claims import Claim
from thalweg.core.errors import ConfigError

ALL_CLIENTS = list(range(6))


def prototype(concept, classes=(0, 1)):
    """Return a prototype of two classes with four outputs; concepts differ in their outputs."""
    rows = 5 * np.eye(4)[2 * (concept % 2) : 2 * (concept % 2) + 2] + concept // 2
    has_class = np.isin([0, 1], classes)
    return np.where(has_class[:, None], rows, 0.0), has_class.astype(np.float64)


def responses_for(old, new, classes=(0, 1)):
    """Return the responses of clients with data of these concepts; None: no old data."""
    responses = {NEW: [], NEW + CLASSES: [], OLD: [], OLD + CLASSES: []}
    for before, now in zip(old, new, strict=True):
        for name, concept in ((OLD, before), (NEW, now)):
            rows, has_class = prototype(0, ()) if concept is None else prototype(concept, classes)
            responses[name].append(rows.ravel())
            responses[name + CLASSES].append(has_class)
    responses[NEW_SINCE] = [[7.0]] * len(new)
    return {name: np.array(rows) for name, rows in responses.items()}


def first_step(bank, num_clients=6, cohort=ALL_CLIENTS):
    roster = roster_for(0, cohort, num_clients=num_clients)
    return bank.assign(bank.init(num_clients, 2), roster, {}, 1)


def second_step(bank, old, new, *, rnd=40, cohort=ALL_CLIENTS, plan=None):
    plan = plan or first_step(bank, len(old), list(range(len(old))))
    cohort, surveyed = [k for k in cohort if k < len(old)], range(len(old))
    roster = roster_for(rnd, cohort, num_clients=len(old), surveyed=surveyed)
    return bank.assign(plan.state, roster, responses_for(old, new), len(plan.mix))


def test_first_step_has_first_count_models_and_no_survey():
    bank = FedDaa()
    assert len(bank.choose_surveyed(roster_for(0, [0]), np.random.default_rng(0))) == 0
    plan = first_step(bank)
    assert plan.mix.tolist() == [[1.0], [0.0]]
    assert plan.broadcast[SINCE].tolist() == [[0.0]] * 6
    first = {"judged_clients": [], "drifted_clients": []}
    assert bank.extra_metrics(plan.state, roster_for(0, [0])) == first
    assert bank.extra_metrics(plan.state, roster_for(1, [0])) == {}


def test_state_before_the_first_round():
    state = FedDaa(cluster_count="given", given=(3, 1)).init(num_clients=4, num_classes=2)
    assert state.mass.shape == (4, 3, 2)  # as many models as the first step has
    assert (state.number, state.clustered_in, state.started_in) == (-1, -1, -1)
    assert (state.began, state.clusters_found) == (0, 0)
    assert state.learn_since.tolist() == [0] * 4
    assert not np.concatenate([state.mass.ravel(), state.drifted, state.judged]).any()
    assert state.concepts.tolist() == [-1] * 4


def test_present_clients_are_surveyed_at_step_starts_only():
    bank, rng = FedDaa(every=40), np.random.default_rng(0)
    assert bank.choose_surveyed(roster_for(40, [0], present=[0, 2, 3]), rng).tolist() == [0, 2, 3]
    assert bank.choose_surveyed(roster_for(41, [0]), rng).tolist() == []
    every_round = FedDaa(every=1)
    assert every_round.choose_surveyed(roster_for(0, [0], present=[0, 2]), rng).tolist() == []
    assert every_round.choose_surveyed(roster_for(1, [0], present=[0, 2]), rng).tolist() == [0, 2]


def test_models_follow_the_clusters_and_drifts_the_nearest_centres():
    bank = FedDaa()
    plan = second_step(bank, [0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2])
    assert plan.state.clusters_found == 3
    assert plan.mix.tolist() == [[1, 0], [0, 1], [0, 0]]
    assert plan.is_new.tolist() == [False, False, True]
    assert plan.state.drifted.tolist() == [False, False, True, False, True, True]
    assert plan.broadcast[SINCE].ravel().tolist() == [0, 0, 40, 0, 40, 40]
    assert plan.broadcast[BEGAN].ravel().tolist() == [40] * 6


def test_mixtures_and_label_priors_are_reset_at_a_step_start():
    bank, plan = FedDaa(), first_step(FedDaa())
    uploads = {MASS: np.array([[9, 1, 0, 0]] * 6, dtype=np.float32)}
    state = bank.collect(plan.state, np.arange(6), uploads)
    assert bank.mixtures(state, 2)[0].tolist() == [1.0, 0.0]
    roster = roster_for(40, ALL_CLIENTS, surveyed=ALL_CLIENTS)
    plan = bank.assign(state, roster, responses_for([0] * 6, [0, 0, 0, 1, 1, 1]), 2)
    assert bank.mixtures(plan.state, 2).tolist() == [[0.5, 0.5]] * 6
    assert plan.broadcast[PRIORS].tolist() == [[0.5] * 4] * 6


def split(bank, kept, broadcast, since):
    losses = np.array([[0.1] * len(since), [3.0] * len(since)], dtype=np.float32)
    context = SplitContext(np.arange(2), losses, np.zeros(len(since), int), np.array(since), 40)
    return bank.split_samples(kept, context, broadcast)


def test_samples_before_learn_since_have_weight_zero():
    bank = FedDaa()
    broadcast = {PRIORS: np.full(4, 0.5), SINCE: np.array([40.0]), BEGAN: np.array([40.0])}
    kept, weights = split(bank, bank.init_split(2), broadcast, [0, 39, 40, 41])
    assert weights[:, :2].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    np.testing.assert_allclose(weights[:, 2:].sum(axis=0), 1)
    assert kept.mass.sum() == pytest.approx(2)
    kept, _ = split(bank, kept, broadcast, [40])
    assert kept.mixture[0] > 0.99  # after two updates
    broadcast = {**broadcast, BEGAN: np.array([80.0]), SINCE: np.array([80.0])}
    kept, weights = split(bank, kept, broadcast, [40, 41])  # no sample of this step
    assert not weights.any()
    assert kept.mixture.tolist() == [0.5, 0.5]


def test_given_number_of_models_overrides_the_number_of_clusters():
    bank = FedDaa(cluster_count="given", given=(2, 3, 4))
    plan = second_step(bank, [0] * 6, [0, 0, 0, 1, 1, 1])
    assert len(plan.mix) == 3
    assert plan.state.clusters_found == 2
    assert bank.extra_metrics(plan.state, roster_for(40, [0]))["clusters_found"] == 2
    for rnd, expected in ((80, 4), (120, 4), (160, 4)):
        plan = second_step(bank, [0] * 6, [0, 0, 0, 1, 1, 1], rnd=rnd, plan=plan)
        assert len(plan.mix) == expected


@pytest.mark.parametrize(
    ("switches", "models", "since"),
    [
        ({}, 3, [0, 0, 40, 0, 40, 40]),
        ({"use_ncd": False}, 2, None),
        ({"use_rdld": False}, 3, [0] * 6),
        ({"use_daa": False}, 3, [40] * 6),
    ],
)
def test_ncd_rdld_and_daa_can_be_disabled(switches, models, since):
    plan = second_step(FedDaa(**switches), [0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2])
    assert len(plan.mix) == models
    if since is not None:
        assert plan.broadcast[SINCE].ravel().tolist() == since


def shrink(bank, mass, old, new, num_models=3):
    """Start a second step in a bank of `num_models`; return the models that are kept."""
    plan = first_step(bank)
    state = bank.collect(plan.state, np.arange(6), {MASS: np.array(mass, dtype=np.float32)})
    roster = roster_for(40, ALL_CLIENTS, surveyed=ALL_CLIENTS)
    plan = bank.assign(state, roster, responses_for(old, new), num_models)
    assert not plan.is_new.any()
    assert (plan.mix.sum(axis=1) == 1).all()
    return plan.mix.argmax(axis=1).tolist()


# Label masses of six clients: two classes for each of three models. Five clients of concept 0 use
# models 0 and 1 (0.6 and 0.4), the client of concept 1 uses model 2: totals 3, 2 and 1.
UNEVEN = [[0.6, 0, 0.4, 0, 0, 0]] * 5 + [[0, 0, 0, 0, 1, 0]]
CONCEPTS = [0, 0, 0, 0, 0, 1]


def test_largest_shrinking_keeps_the_models_with_the_largest_total_mixture():
    bank = FedDaa(first_count=3, shrinking="largest")
    assert shrink(bank, UNEVEN, CONCEPTS, CONCEPTS) == [0, 1]


def test_largest_shrinking_counts_clients_and_not_samples():
    # Client 0 has 100 samples of model 0; the others have one sample each of model 1 or 2.
    mass = [[100, 0, 0, 0, 0, 0]] + [[0, 0, 1, 0, 0, 0]] * 3 + [[0, 0, 0, 0, 1, 0]] * 2
    assert shrink(FedDaa(first_count=3), mass, CONCEPTS, CONCEPTS) == [1, 2]


def test_matched_shrinking_keeps_one_model_for_each_cluster():
    bank = FedDaa(first_count=3, shrinking="matched")
    assert shrink(bank, UNEVEN, CONCEPTS, CONCEPTS) == [0, 2]


def test_matched_shrinking_assigns_three_of_four_models_to_three_clusters():
    # Model 3 is used more than model 2 (0.8 and 0.6 clients), but by the cluster of model 0.
    mass = [[0.6, 0, 0, 0, 0, 0, 0.4, 0]] * 2 + [[0, 0, 1, 0, 0, 0, 0, 0]] * 2
    mass += [[0, 0, 0.7, 0, 0.3, 0, 0, 0]] * 2
    concepts = [0, 0, 1, 1, 2, 2]
    bank = FedDaa(first_count=4, shrinking="matched")
    assert shrink(bank, mass, concepts, concepts, num_models=4) == [0, 1, 2]


def test_matched_shrinking_uses_the_clusters_of_the_old_data():
    # Client 4 has old data of concept 1. Client 5 has new data of concept 1 and no old data.
    mass = [[1, 0, 0, 0, 0, 0]] * 4 + [[0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 1, 0]]
    bank = FedDaa(first_count=3, shrinking="matched")
    assert shrink(bank, mass, [0, 0, 0, 0, 1, None], [0, 0, 0, 0, 0, 1]) == [0, 1]


def test_matched_shrinking_needs_as_many_clusters_as_models():
    bank = FedDaa(cluster_count="given", given=(3, 1), shrinking="matched")
    assert shrink(bank, UNEVEN, CONCEPTS, CONCEPTS) == [0]  # two clusters: the largest model


def test_without_rdld_no_client_has_drifted_and_all_train_on_old_samples():
    bank, plan = FedDaa(use_rdld=False), first_step(FedDaa())
    roster = roster_for(40, ALL_CLIENTS, surveyed=[0, 1, 2, 3])
    plan = bank.assign(plan.state, roster, responses_for([0, 0, 1, 1], [1, 0, 1, 1]), 2)
    assert bank.extra_metrics(plan.state, roster)["drifts_found"] == 0
    assert plan.broadcast[SINCE].ravel().tolist() == [0] * 6  # also without a response


def test_without_ncd_the_prototypes_are_clustered_into_first_count_groups():
    bank = FedDaa(use_ncd=False, first_count=3)
    plan = second_step(bank, [0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 2])
    assert plan.state.clusters_found == 3
    assert plan.state.drifted.tolist() == [False] * 5 + [True]


def test_true_drift_flags_replace_those_of_rdld():
    """The prototypes of clients 2, 4 and 5 change their cluster, the concepts of 0 and 5 do."""
    bank = FedDaa(drift_flags="oracle")
    plan = bank.assign(
        bank.init(6, 2), roster_for(0, ALL_CLIENTS, concepts=[0, 0, 0, 1, 1, 1]), {}, 1
    )
    assert plan.state.concepts.tolist() == [0, 0, 0, 1, 1, 1]
    responses = responses_for([0, 0, 0, 1, 1, None], [0, 0, 1, 1, 2, 2])
    roster = roster_for(40, ALL_CLIENTS, surveyed=ALL_CLIENTS, concepts=[3, 0, 0, 1, 1, 3])
    plan = bank.assign(plan.state, roster, responses, 2)
    assert len(plan.mix) == 3, "the number of models is still found by NCD"
    assert plan.state.drifted.tolist() == [True, False, False, False, False, False]
    assert plan.state.judged.tolist() == [True] * 5 + [False], "client 5 has no old samples"
    assert plan.broadcast[SINCE].ravel().tolist() == [40, 0, 0, 0, 0, 0]
    roster = roster_for(80, ALL_CLIENTS, surveyed=ALL_CLIENTS, concepts=[3, 1, 0, 1, 1, 3])
    plan = bank.assign(plan.state, roster, responses_for([0] * 6, [0, 0, 0, 1, 1, 1]), 3)
    assert plan.state.drifted.tolist() == [False, True, False, False, False, False]


def test_true_drift_flags_need_a_simulation():
    bank = FedDaa(drift_flags="oracle")
    assert bank.is_oracle
    assert not FedDaa().is_oracle
    with pytest.raises(
        ConfigError, match=r"bank\.drift_flags=oracle needs the true concept.*simulat"
    ):
        first_step(bank)


def test_step_without_responses_keeps_the_models_and_the_number_of_clusters():
    bank = FedDaa()
    plan = second_step(bank, [0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2])
    plan = bank.assign(plan.state, roster_for(80, [0, 1], surveyed=[]), {}, 3)
    assert plan.mix.tolist() == np.eye(3).tolist()
    assert not plan.state.drifted.any()
    assert bank.extra_metrics(plan.state, roster_for(80, [0, 1])) == {
        "clusters_found": 3,
        "judged_clients": [],
        "drifted_clients": [],
    }


def test_judged_and_drifted_clients_are_reported_in_the_first_round_of_a_step():
    bank = FedDaa()
    plan = second_step(bank, [0, 0, 0, 1, 1, None], [0, 0, 1, 1, 1, 0])
    assert bank.extra_metrics(plan.state, roster_for(40, [0])) == {
        "clusters_found": 2,
        "drifts_found": 1,
        "judged_clients": [0, 1, 2, 3, 4],
        "drifted_clients": [2],
    }
    assert bank.extra_metrics(plan.state, roster_for(41, [0])) == {"clusters_found": 2}


def test_single_client_is_one_cluster_without_drift():
    bank = FedDaa()
    plan = second_step(bank, [0], [1], cohort=[0])
    assert len(plan.mix) == 1
    assert plan.broadcast[SINCE].tolist() == [[0.0]]
    assert bank.extra_metrics(plan.state, roster_for(40, [0]))["clusters_found"] == 1


def test_given_number_of_models_may_exceed_the_number_of_clients():
    bank = FedDaa(cluster_count="given", given=(2, 4))
    plan = second_step(bank, [0, 1], [1, 1], cohort=[0, 1])
    assert len(plan.mix) == 4
    assert plan.models.tolist() == [0, 1, 2, 3] * 2


def test_identical_prototypes_form_one_cluster():
    plan = second_step(FedDaa(), [0] * 6, [0] * 6)
    assert plan.state.clusters_found == 1
    assert not plan.state.drifted.any()


@pytest.mark.parametrize("missing", ["zero", "impute", "mask"])
def test_clusters_and_drifts_with_a_class_that_no_client_has(missing):
    bank = FedDaa(missing=missing)
    plan = first_step(bank)
    roster = roster_for(40, ALL_CLIENTS, surveyed=ALL_CLIENTS)
    responses = responses_for([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 0], classes=[0])
    plan = bank.assign(plan.state, roster, responses, 2)
    assert plan.state.clusters_found == 2
    assert plan.state.drifted.tolist() == [False, False, True, False, False, True]


def test_missing_classes_split_clusters_with_zero_rows_but_not_with_masks():
    """Two concepts; of each, two clients have both classes and four have one class only."""
    concepts, parts = [0, 1, 0, 1, 0, 1], ([0, 1], [0], [1], [0], [1], [0, 1])
    responses = [responses_for(concepts[:2], concepts[:2], classes) for classes in parts]
    both = {
        name: np.concatenate([response[name] for response in responses]) for name in responses[0]
    }
    roster = roster_for(40, range(12), num_clients=12, surveyed=range(12))
    found = {}
    for missing in ("zero", "impute", "mask"):
        bank = FedDaa(missing=missing)
        plan = bank.assign(first_step(bank, 12, list(range(12))).state, roster, both, 2)
        found[missing] = plan.state.clusters_found
    assert found["zero"] > 2
    assert found["mask"] == 2


def test_clients_without_a_response_train_on_new_samples_only():
    bank, plan = FedDaa(), first_step(FedDaa())
    roster = roster_for(40, ALL_CLIENTS, surveyed=[0, 1, 2, 3])
    plan = bank.assign(plan.state, roster, responses_for([0, 0, 1, 1], [0, 0, 1, 1]), 2)
    assert plan.broadcast[SINCE].ravel().tolist() == [0, 0, 0, 0, 40, 40]


def test_clients_without_samples_or_without_old_samples_have_not_drifted():
    bank, plan = FedDaa(), first_step(FedDaa())
    responses = responses_for([0, 0, 1, 1, None, 1], [0, 0, 1, 1, 1, 0])
    for response in responses.values():
        response[5] = math.nan
    plan = bank.assign(plan.state, roster_for(40, ALL_CLIENTS, surveyed=ALL_CLIENTS), responses, 2)
    assert not plan.state.drifted.any()
    assert plan.broadcast[SINCE].ravel().tolist() == [0, 0, 0, 0, 0, 40]


@pytest.mark.parametrize("rnd", [40, 47])
def test_step_starts_without_any_responses(rnd):
    bank, plan = FedDaa(), first_step(FedDaa())
    plan = bank.assign(plan.state, roster_for(rnd, [0, 1], surveyed=[]), {}, 2)
    assert len(plan.mix) == 2
    assert plan.broadcast[BEGAN].tolist() == [[40.0]] * 2
    assert plan.broadcast[SINCE].tolist() == [[40.0]] * 2
    empty = {"judged_clients": [], "drifted_clients": []}
    assert bank.extra_metrics(plan.state, roster_for(rnd, [0])) == empty


def test_models_do_not_change_during_a_step():
    bank, plan = FedDaa(), first_step(FedDaa())
    for rnd in range(1, 40):
        plan = bank.assign(plan.state, roster_for(rnd, [rnd % 6], surveyed=[]), {}, 2)
        assert plan.mix.tolist() == [[1, 0], [0, 1]]
        assert plan.broadcast[BEGAN].tolist() == [[0.0]]
        assert (plan.state.number, plan.state.started_in) == (0, 0)


def test_alarms_start_steps_after_the_minimum_length():
    bank, rng = FedDaa(every=None, min_step_rounds=10), np.random.default_rng(0)
    plan = first_step(bank)
    for rnd, alarmed, began in (
        (5, [0], 0),
        (12, [5], 0),
        (12, [0], 12),
        (13, [1], 12),
        (22, [1], 22),
    ):
        roster = roster_for(rnd, [0, 1], surveyed=ALL_CLIENTS, alarmed=alarmed)
        surveyed = bank.choose_surveyed(roster, rng).tolist()
        assert surveyed == (
            [] if alarmed == [5] else ALL_CLIENTS
        )  # the alarmed client must be chosen
        plan = bank.assign(plan.state, roster, responses_for([0] * 6, [0, 0, 0, 1, 1, 1]), 2)
        assert plan.broadcast[BEGAN].ravel().tolist() == [began] * 2


def test_after_an_alarm_drifted_clients_train_on_the_last_arrival_and_others_on_all():
    bank = FedDaa(every=None)
    plan = first_step(bank)
    roster = roster_for(12, ALL_CLIENTS, surveyed=ALL_CLIENTS, alarmed=[0])
    plan = bank.assign(plan.state, roster, responses_for([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 0]), 2)
    assert plan.broadcast[SINCE].ravel().tolist() == [0, 0, 7, 0, 0, 7]


class Drifting(FakeSurveyContext):
    """Rows 0-3 arrived in round 0, 4-9 in round 40, 10-12 arrive now; row r has outputs r, r, r."""

    since = np.array([0] * 4 + [40] * 6)

    @property
    def newest(self):
        return np.arange(10, 13)


def test_response_contains_prototypes_of_the_previous_step_and_of_new_samples():
    response = FedDaa(every=40).answer_survey(Drifting(rnd=80))[1]
    assert (
        response[NEW].tolist() == [12.0] * 3 + [10.0] * 3 + [11.0] * 3
    )  # rows 12, 10, 11: classes 0, 1, 2
    assert response[OLD].tolist() == [7.5] * 3 + [5.5] * 3 + [6.5] * 3  # rows 6, 9; 4, 7; 5, 8
    assert response[NEW + CLASSES].tolist() == [1.0] * 3


def test_after_an_alarm_the_last_arrival_is_new_if_nothing_arrives():
    class Waiting(Drifting):
        @property
        def newest(self):
            return self.held

    response = FedDaa(every=None).answer_survey(Waiting(rnd=45))[1]
    assert response[NEW_SINCE].tolist() == [40.0]
    assert response[NEW].tolist() == [7.5] * 3 + [5.5] * 3 + [6.5] * 3
    assert response[OLD].tolist() == [1.5] * 3 + [1.0] * 3 + [2.0] * 3  # rows 0, 3; 1; 2
    assert FedDaa(every=None).answer_survey(Drifting(rnd=45))[1][NEW_SINCE].tolist() == [45.0]


def test_prototypes_of_probabilities_have_unit_length():
    response = FedDaa(every=40, output="probabilities").answer_survey(Drifting(rnd=80))[1]
    np.testing.assert_allclose(response[NEW], 1 / 3)
    assert np.linalg.norm(response[OLD]) == pytest.approx(1)


def test_prototype_of_a_single_sample_has_one_class():
    class OneSample(Drifting):
        held, since = np.array([4]), np.array([40])

        @property
        def newest(self):
            return np.array([4])

    response = client_prototypes(OneSample(), 40, "probabilities")
    assert response[NEW + CLASSES].tolist() == response[OLD + CLASSES].tolist() == [0.0, 1.0, 0.0]


def test_response_of_a_client_without_samples_is_empty():
    assert FedDaa().answer_survey(FakeSurveyContext(has_data=False)) == (None, {})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"every": 0}, "every must be at least 1, or none"),
        ({"given": ()}, "one for each step"),
        ({"given": (2, 0)}, "one for each step"),
        ({"missing": "guess"}, "unknown missing"),
        ({"drift_flags": "oracle", "use_rdld": False}, "no effect with use_rdld=false"),
        ({"single_cluster_threshold": 2.0}, "single_cluster_threshold must lie in"),
    ],
)
def test_invalid_fields_are_rejected(fields, message):
    with pytest.raises(ConfigError, match=message):
        FedDaa(**fields)


def test_a_single_given_number_of_models_is_used_in_every_step():
    bank = FedDaa(cluster_count="given", given=(2,))
    plan = second_step(bank, [0] * 6, [0, 0, 1, 1, 2, 2])
    assert len(plan.mix) == 2


def test_survey_responses_need_prototypes_and_training_responses_need_masses():
    bank = FedDaa()
    prototypes = {name: rows[0] for name, rows in responses_for([0], [1]).items()}
    masses = {MASS: np.array([[3.0, 2.0]])}
    as_survey = Claim(prototypes, 10, 1, num_classes=2, is_survey_response=True)
    as_update = Claim(masses, 10, 1, num_samples=5, num_classes=2)
    assert bank.validate_claim(as_survey) is None
    assert bank.validate_claim(as_update) is None
    assert bank.validate_claim(as_survey._replace(uploads=masses)) is not None
    assert bank.validate_claim(as_update._replace(uploads=prototypes)) is not None
    assert "expected at most 4" in bank.validate_claim(as_update._replace(num_samples=4))
