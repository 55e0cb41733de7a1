import math

import numpy as np
import pytest

from contracts.rosters import roster_for
from contracts.survey_contexts import FakeSurveyContext
from thalweg.bank import FedDaa, SplitContext
from thalweg.bank.prototype_set import CLASSES, NEW, OLD, client_prototypes
from thalweg.bank.prototype_set import SINCE as NEW_SINCE
from thalweg.bank.soft import BEGAN, MASS, PRIORS, SINCE
from thalweg.core.errors import ConfigError

EVERYBODY = list(range(6))


def prototype(concept, classes=(0, 1)):
    """Of a world with two classes: concepts have their answers in different places."""
    rows = 5 * np.eye(4)[2 * (concept % 2) : 2 * (concept % 2) + 2] + concept // 2
    there = np.isin([0, 1], classes)
    return np.where(there[:, None], rows, 0.0), there.astype(np.float64)


def survey(old, new, classes=(0, 1)):
    """What clients answer whose data are of these concepts; none: they have no old data."""
    words = {NEW: [], NEW + CLASSES: [], OLD: [], OLD + CLASSES: []}
    for before, now in zip(old, new, strict=True):
        for name, concept in ((OLD, before), (NEW, now)):
            rows, there = prototype(0, ()) if concept is None else prototype(concept, classes)
            words[name].append(rows.ravel())
            words[name + CLASSES].append(there)
    words[NEW_SINCE] = [[7.0]] * len(new)
    return {name: np.array(rows) for name, rows in words.items()}


def first_step(bank, num_clients=6, cohort=EVERYBODY, concepts=None):
    roster = roster_for(0, cohort, num_clients=num_clients, concepts=concepts)
    return bank.assign(bank.init(num_clients, 2), roster, {}, 1)


def second_step(bank, old, new, *, rnd=40, cohort=EVERYBODY, concepts=None, plan=None):
    plan = plan or first_step(bank, len(old), list(range(len(old))))
    cohort, surveyed = [k for k in cohort if k < len(old)], range(len(old))
    roster = roster_for(rnd, cohort, num_clients=len(old), surveyed=surveyed, concepts=concepts)
    return bank.assign(plan.notes, roster, survey(old, new), len(plan.mix))


def test_the_first_step_has_as_many_models_as_it_is_told_and_asks_nobody():
    bank = FedDaa()
    assert len(bank.choose_surveyed(roster_for(0, [0]), np.random.default_rng(0))) == 0
    plan = first_step(bank)
    assert plan.mix.tolist() == [[1.0], [0.0]]
    assert plan.broadcast[SINCE].tolist() == [[0.0]] * 6
    assert bank.extra_metrics(plan.notes, roster_for(0, [0])) == {}


def test_everybody_who_is_here_is_asked_when_a_step_begins_and_nobody_in_between():
    bank, rng = FedDaa(every=40), np.random.default_rng(0)
    assert bank.choose_surveyed(roster_for(40, [0], present=[0, 2, 3]), rng).tolist() == [0, 2, 3]
    assert bank.choose_surveyed(roster_for(41, [0]), rng).tolist() == []


def test_as_many_models_as_clusters_and_drifts_by_the_nearest_centre():
    bank = FedDaa()
    plan = second_step(bank, [0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2])
    assert plan.notes.clusters_found == 3
    assert plan.mix.tolist() == [[1, 0], [0, 1], [0, 0]]
    assert plan.is_new.tolist() == [False, False, True]
    assert plan.notes.drifted.tolist() == [False, False, True, False, True, True]
    assert plan.broadcast[SINCE].ravel().tolist() == [0, 0, 40, 0, 40, 40]
    assert plan.broadcast[BEGAN].ravel().tolist() == [40] * 6


def test_mixtures_and_label_priors_begin_anew_with_a_step():
    bank, plan = FedDaa(), first_step(FedDaa())
    uploads = {MASS: np.array([[9, 1, 0, 0]] * 6, dtype=np.float32)}
    notes = bank.collect(plan.notes, np.arange(6), uploads)
    assert bank.mixtures(notes, 2)[0].tolist() == [1.0, 0.0]
    roster = roster_for(40, EVERYBODY, surveyed=EVERYBODY)
    plan = bank.assign(notes, roster, survey([0] * 6, [0, 0, 0, 1, 1, 1]), 2)
    assert bank.mixtures(plan.notes, 2).tolist() == [[0.5, 0.5]] * 6
    assert plan.broadcast[PRIORS].tolist() == [[0.5] * 4] * 6


def divided(bank, kept, broadcast, since):
    losses = np.array([[0.1] * len(since), [3.0] * len(since)], dtype=np.float32)
    split = SplitContext(np.arange(2), losses, np.zeros(len(since), int), np.array(since), 40)
    return bank.split_samples(kept, split, broadcast)


def test_a_client_leaves_out_what_it_must_not_learn_from():
    bank = FedDaa()
    broadcast = {PRIORS: np.full(4, 0.5), SINCE: np.array([40.0]), BEGAN: np.array([40.0])}
    kept, weights = divided(bank, bank.init_split(2), broadcast, [0, 39, 40, 41])
    assert weights[:, :2].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    np.testing.assert_allclose(weights[:, 2:].sum(axis=0), 1)
    assert kept.mass.sum() == pytest.approx(2)
    kept, _ = divided(bank, kept, broadcast, [40])
    assert kept.mixture[0] > 0.99  # twice in a row
    broadcast = {**broadcast, BEGAN: np.array([80.0]), SINCE: np.array([80.0])}
    kept, weights = divided(bank, kept, broadcast, [40, 41])  # nothing has come in this step
    assert not weights.any()
    assert kept.mixture.tolist() == [0.5, 0.5]


def test_the_given_number_of_models_is_taken_and_that_of_the_clusters_only_noted():
    bank = FedDaa(cluster_count="given", given=(2, 3, 4))
    plan = second_step(bank, [0] * 6, [0, 0, 0, 1, 1, 1])
    assert len(plan.mix) == 3
    assert plan.notes.clusters_found == 2
    assert bank.extra_metrics(plan.notes, roster_for(40, [0]))["clusters_found"] == 2
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
def test_each_part_can_be_switched_off(switches, models, since):
    plan = second_step(FedDaa(**switches), [0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2])
    assert len(plan.mix) == models
    if since is not None:
        assert plan.broadcast[SINCE].ravel().tolist() == since


def test_a_bank_that_shrinks_keeps_the_models_that_explain_most():
    bank = FedDaa(cluster_count="given", given=(3, 2))
    plan = first_step(bank)
    uploads = {MASS: np.array([[0, 1, 5, 5, 4, 4]] * 6, dtype=np.float32)}
    notes = bank.collect(plan.notes, np.arange(6), uploads)
    roster = roster_for(40, EVERYBODY, surveyed=EVERYBODY)
    plan = bank.assign(notes, roster, survey([0] * 6, [0, 0, 0, 1, 1, 1]), 3)
    assert plan.mix.tolist() == [[0, 1, 0], [0, 0, 1]]
    assert not plan.is_new.any()


def test_or_of_each_cluster_the_one_that_explained_most_of_its_clients():
    bank = FedDaa(first_count=3, shrinking="matched")
    plan = first_step(bank)
    mass = np.zeros((6, 6), dtype=np.float32)
    mass[:4, 0], mass[:4, 2] = 0.6, 0.4  # models 0 and 1 share the clients of concept 0
    mass[4:, 4] = 1.0  # model 2 has those of concept 1
    notes = bank.collect(plan.notes, np.arange(6), {MASS: mass})
    roster, answers = (
        roster_for(40, EVERYBODY, surveyed=EVERYBODY),
        survey([0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 1]),
    )
    assert bank.assign(notes, roster, answers, 3).mix.tolist() == [[1, 0, 0], [0, 0, 1]]


def test_drifts_are_scored_where_the_truth_is_known():
    bank = FedDaa()
    plan = first_step(bank, concepts=[0, 0, 0, 1, 1, 1])
    plan = second_step(
        bank, [0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 0], concepts=[0, 1, 1, 1, 1, 1], plan=plan
    )
    extra_metrics = bank.extra_metrics(plan.notes, roster_for(40, [0]))
    assert extra_metrics == {
        "clusters_found": 2,
        "drifts_found": 2,
        "drift_precision": 0.5,
        "drift_recall": 0.5,
    }
    assert bank.extra_metrics(plan.notes, roster_for(41, [0])) == {"clusters_found": 2}


def test_where_it_is_not_known_they_are_only_counted():
    bank = FedDaa()
    plan = second_step(bank, [0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 0])
    assert bank.extra_metrics(plan.notes, roster_for(40, [0])) == {
        "clusters_found": 2,
        "drifts_found": 2,
    }


def test_one_client_is_one_cluster_and_has_not_drifted():
    bank = FedDaa()
    plan = second_step(bank, [0], [1], cohort=[0])
    assert len(plan.mix) == 1
    assert plan.broadcast[SINCE].tolist() == [[0.0]]


def test_fewer_clients_than_clusters_are_given():
    bank = FedDaa(cluster_count="given", given=(2, 4))
    plan = second_step(bank, [0, 1], [1, 1], cohort=[0, 1])
    assert len(plan.mix) == 4
    assert plan.models.tolist() == [0, 1, 2, 3] * 2


def test_identical_prototypes_are_one_cluster():
    plan = second_step(FedDaa(), [0] * 6, [0] * 6)
    assert plan.notes.clusters_found == 1
    assert not plan.notes.drifted.any()


@pytest.mark.parametrize("missing", ["zero", "impute", "mask"])
def test_a_class_that_nobody_has(missing):
    bank = FedDaa(missing=missing)
    plan = first_step(bank)
    roster = roster_for(40, EVERYBODY, surveyed=EVERYBODY)
    answers = survey([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 0], classes=[0])
    plan = bank.assign(plan.notes, roster, answers, 2)
    assert plan.notes.clusters_found == 2
    assert plan.notes.drifted.tolist() == [False, False, True, False, False, True]


def test_classes_that_some_lack_look_like_concepts_if_they_are_zeros_but_not_if_they_are_left_out():
    """Two concepts; of each, two clients have both classes and four have one of them alone."""
    concepts, parts = [0, 1, 0, 1, 0, 1], ([0, 1], [0], [1], [0], [1], [0, 1])
    answers = [survey(concepts[:2], concepts[:2], classes) for classes in parts]
    both = {name: np.concatenate([words[name] for words in answers]) for name in answers[0]}
    roster = roster_for(40, range(12), num_clients=12, surveyed=range(12))
    found = {}
    for missing in ("zero", "impute", "mask"):
        bank = FedDaa(missing=missing)
        plan = bank.assign(first_step(bank, 12, list(range(12))).notes, roster, both, 2)
        found[missing] = plan.notes.clusters_found
    assert found["zero"] > 2
    assert found["mask"] == 2


def test_who_could_not_be_asked_learns_from_new_data_alone():
    bank, plan = FedDaa(), first_step(FedDaa())
    roster = roster_for(40, EVERYBODY, surveyed=[0, 1, 2, 3])
    plan = bank.assign(plan.notes, roster, survey([0, 0, 1, 1], [0, 0, 1, 1]), 2)
    assert plan.broadcast[SINCE].ravel().tolist() == [0, 0, 0, 0, 40, 40]


def test_a_client_without_data_says_nothing_and_one_without_old_data_has_not_drifted():
    bank, plan = FedDaa(), first_step(FedDaa())
    answers = survey([0, 0, 1, 1, None, 1], [0, 0, 1, 1, 1, 0])
    for words in answers.values():
        words[5] = math.nan
    plan = bank.assign(plan.notes, roster_for(40, EVERYBODY, surveyed=EVERYBODY), answers, 2)
    assert not plan.notes.drifted.any()
    assert plan.broadcast[SINCE].ravel().tolist() == [0, 0, 0, 0, 0, 40]


@pytest.mark.parametrize("rnd", [40, 47])
def test_a_step_in_whose_first_round_nobody_answers_begins_all_the_same(rnd):
    bank, plan = FedDaa(), first_step(FedDaa())
    plan = bank.assign(plan.notes, roster_for(rnd, [0, 1], surveyed=[]), {}, 2)
    assert len(plan.mix) == 2
    assert plan.broadcast[BEGAN].tolist() == [[40.0]] * 2
    assert plan.broadcast[SINCE].tolist() == [[40.0]] * 2
    assert bank.extra_metrics(plan.notes, roster_for(rnd, [0])) == {}


def test_models_go_on_while_a_step_lasts():
    bank, plan = FedDaa(), first_step(FedDaa())
    for rnd in range(1, 40):
        plan = bank.assign(plan.notes, roster_for(rnd, [rnd % 6], surveyed=[]), {}, 2)
        assert plan.mix.tolist() == [[1, 0], [0, 1]]
        assert plan.broadcast[BEGAN].tolist() == [[0.0]]


def test_steps_may_begin_with_an_alarm_but_last_a_while():
    bank, rng = FedDaa(every=None, min_step_rounds=10), np.random.default_rng(0)
    plan = first_step(bank)
    for rnd, alarmed, began in (
        (5, [0], 0),
        (12, [5], 0),
        (12, [0], 12),
        (13, [1], 12),
        (22, [1], 22),
    ):
        roster = roster_for(rnd, [0, 1], surveyed=EVERYBODY, alarmed=alarmed)
        surveyed = bank.choose_surveyed(roster, rng).tolist()
        assert surveyed == ([] if alarmed == [5] else EVERYBODY)  # who is not chosen must wait
        plan = bank.assign(plan.notes, roster, survey([0] * 6, [0, 0, 0, 1, 1, 1]), 2)
        assert plan.broadcast[BEGAN].ravel().tolist() == [began] * 2


def test_after_an_alarm_who_has_drifted_learns_from_what_came_last_and_the_others_from_all():
    bank = FedDaa(every=None)
    plan = first_step(bank)
    roster = roster_for(12, EVERYBODY, surveyed=EVERYBODY, alarmed=[0])
    plan = bank.assign(plan.notes, roster, survey([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 0]), 2)
    assert plan.broadcast[SINCE].ravel().tolist() == [0, 0, 7, 0, 0, 7]


class Drifting(FakeSurveyContext):
    """Rows 0-3 came in round 0, 4-9 in round 40; 10 to 12 arrive. The model's answer to row r is r, r, r."""

    since = np.array([0] * 4 + [40] * 6)

    @property
    def newest(self):
        return np.arange(10, 13)


def test_a_client_makes_prototypes_of_the_last_step_and_of_what_arrives():
    words = FedDaa(every=40).answer_survey(Drifting(rnd=80))[1]
    assert (
        words[NEW].tolist() == [12.0] * 3 + [10.0] * 3 + [11.0] * 3
    )  # rows 12, 10, 11: classes 0, 1, 2
    assert words[OLD].tolist() == [7.5] * 3 + [5.5] * 3 + [6.5] * 3  # rows 6, 9; 4, 7; 5, 8
    assert words[NEW + CLASSES].tolist() == [1.0] * 3


def test_after_an_alarm_new_is_what_came_last_if_nothing_arrives():
    class Waiting(Drifting):
        @property
        def newest(self):
            return self.held

    words = FedDaa(every=None).answer_survey(Waiting(rnd=45))[1]
    assert words[NEW_SINCE].tolist() == [40.0]
    assert words[NEW].tolist() == [7.5] * 3 + [5.5] * 3 + [6.5] * 3
    assert words[OLD].tolist() == [1.5] * 3 + [1.0] * 3 + [2.0] * 3  # rows 0, 3; 1; 2
    assert FedDaa(every=None).answer_survey(Drifting(rnd=45))[1][NEW_SINCE].tolist() == [45.0]


def test_prototypes_of_probabilities_have_length_one():
    words = FedDaa(every=40, output="probabilities").answer_survey(Drifting(rnd=80))[1]
    np.testing.assert_allclose(words[NEW], 1 / 3)
    assert np.linalg.norm(words[OLD]) == pytest.approx(1)


def test_a_client_with_one_sample_has_a_prototype_of_one_class():
    class OneSample(Drifting):
        held, since = np.array([4]), np.array([40])

        @property
        def newest(self):
            return np.array([4])

    words = client_prototypes(OneSample(), 40, "probabilities")
    assert words[NEW + CLASSES].tolist() == words[OLD + CLASSES].tolist() == [0.0, 1.0, 0.0]


def test_a_client_that_has_nothing_says_nothing():
    assert FedDaa().answer_survey(FakeSurveyContext(has_data=False)) == (None, {})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"every": 0}, "every must be at least 1, or none"),
        ({"given": ()}, "one for each step"),
        ({"given": (2, 0)}, "one for each step"),
        ({"missing": "guess"}, "unknown missing"),
        ({"single_cluster_threshold": 2.0}, "single_cluster_threshold must lie in"),
    ],
)
def test_what_makes_no_sense_is_refused(fields, words):
    with pytest.raises(ConfigError, match=words):
        FedDaa(**fields)
