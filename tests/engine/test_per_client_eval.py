"""Each client is evaluated with its mixture of models in its view of the test samples."""

from dataclasses import replace

import numpy as np
import pytest

from engine.drifting_world import FakeFederation, FakeWorld, some_data
from thalweg.core.mixtures import Mixtures
from thalweg.engine.per_client_eval import ModelUse, ScoreCache, get_model_use, score_per_client
from thalweg.evaluation import SessionContext
from thalweg.federation import ServedModels

# Model 0: white is class 1. Model 1: black is class 1. Model 2 has no idea, but leans to 1.
SURE = [[0.1, 0.9], [0.9, 0.1], [0.6, 0.6]]


def scored(views, mixtures, validation=0.0, session_context=None, data=None, world=None):
    federation = FakeFederation(world or FakeWorld({0: views}), SURE)
    data = data or some_data()
    rows = np.array(mixtures, dtype=float)
    served = ServedModels(federation.models, rows.mean(axis=0), Mixtures.from_rows(rows))
    score_cache = ScoreCache(federation, served.models, data)
    row = score_per_client(
        score_cache,
        get_model_use(served, federation, 0),
        federation,
        data,
        validation,
        session_context,
    )
    return row, federation


def test_a_model_for_every_concept_is_right_everywhere():
    # Labels are unchanged (view 0) or exchanged (view 1); inverted images exchange them again.
    row, _ = scored([0, 1, 2, 3], [[1, 0, 0], [0, 1, 0], [0, 1, 0], [1, 0, 0]])
    assert row["accuracy"] == row["client_accuracy"] == row["worst_client_accuracy"] == 1
    assert row["test_loss"] == pytest.approx(-np.log(0.9), rel=1e-6)


def test_a_client_with_the_model_of_another_concept_is_wrong():
    row, _ = scored([0, 1, 1], [[1, 0, 0], [0, 1, 0], [1, 0, 0]])
    assert row["client_accuracy"] == pytest.approx(2 / 3)
    assert row["accuracy"] == pytest.approx(2 / 3)
    assert row["worst_client_accuracy"] == 0
    assert row["concept_accuracy"] == [1.0, 0.5]


def test_a_mixture_predicts_with_the_mean_of_probabilities():
    # Half of model 0, half of model 2: black is class 1 with .35, white with .75.
    row, _ = scored([0], [[0.5, 0, 0.5]])
    assert row["accuracy"] == 1
    assert row["test_loss"] == pytest.approx(-(3 * np.log(0.65) + np.log(0.75)) / 4, rel=1e-5)


def test_rare_classes_count_as_much_in_the_balanced_accuracy():
    # Model 2 predicts class 1 for all samples and is correct for the white one of four.
    row, _ = scored([0], [[0, 0, 1]])
    assert row["accuracy"] == 0.25
    assert row["balanced_accuracy"] == 0.5


def test_accuracy_is_on_the_whole_test_set_and_client_accuracy_on_data_like_the_clients_own():
    # The client has only class 0, which model 2 never predicts, also if labels are exchanged.
    row, _ = scored([0], [[0, 0, 1]])
    assert (row["accuracy"], row["client_accuracy"]) == (0.25, 0)
    row, _ = scored([1], [[0, 0, 1]])
    assert (row["accuracy"], row["client_accuracy"]) == (0.75, 0)
    row, _ = scored([1], [[1, 0, 0]])
    assert (row["accuracy"], row["client_accuracy"]) == (0, 0)


def test_without_views_client_accuracy_uses_the_label_mix_of_the_client():
    data = some_data(views=())
    world = FakeWorld({0: [0, 0]})
    world.views_at = None
    federation = FakeFederation(world, SURE, data)
    use = ModelUse(Mixtures.from_rows(np.array([[0.0, 0, 1], [1, 0, 0]])), np.zeros(2, int), None)
    score_cache = ScoreCache(federation, federation.models, data)
    row = score_per_client(score_cache, use, federation, data)
    assert row["client_accuracy"] == 0.5, "class 0 alone: never, and always"
    assert row["accuracy"] == (0.25 + 1) / 2
    assert "concept_accuracy" not in row


def test_models_and_views_that_are_not_in_use_are_not_computed():
    _, federation = scored([0, 1], [[1, 0, 0], [1, 0, 0]])
    assert federation.asked == [(0, 4)], "two views of the same inputs"
    _, federation = scored([0, 3], [[1, 0, 0], [0.5, 0.5, 0]])
    assert sorted(federation.asked) == [(0, 4), (0, 4), (1, 4)], "model 1 in one view only"


def test_purity_measures_whether_models_separate_clients_by_concept():
    row, _ = scored([0, 1, 2, 3], [[1, 0, 0], [0, 1, 0], [1, 0, 0], [1, 0, 0]])
    assert row["purity"] == 0.75
    row, _ = scored([0, 2], [[1, 0, 0], [0, 1, 0]])
    assert "purity" not in row, "one concept cannot be divided"
    row, _ = scored([0, 1], [[0.4, 0.6, 0], [0.6, 0.4, 0]])
    assert row["purity"] == 1


def test_validation_samples_are_not_tested():
    y = np.repeat([0, 1], 10)
    x = np.where(y == 1, 255, 0).astype(np.uint8).reshape(-1, 1, 1, 1)
    data = replace(some_data(), x_test=x, y_test=y)
    federation = FakeFederation(FakeWorld({0: [0, 1]}), SURE, data)
    mixtures = Mixtures.from_rows(np.array([[1.0, 0, 0], [1, 0, 0]]))
    served = ServedModels(federation.models, np.ones(3) / 3, mixtures)
    score_cache = ScoreCache(federation, served.models, data)
    row = score_per_client(score_cache, get_model_use(served, federation, 0), federation, data, 0.4)
    assert row["accuracy"] == 0.5
    assert row["validation_accuracy"] == row["validation_client_accuracy"] == 0.5


def test_in_a_session_its_members_count():
    session_context = SessionContext(1, 1, np.array([0, 1]), np.array([1, 2]))
    mixtures = [[1, 0, 0], [1, 0, 0], [0, 0, 1]]
    row, _ = scored([0, 1, 0], mixtures, session_context=session_context)
    assert row["session_accuracy"] == 0.5, "on class 0 as they see it, of which members have data"
    assert (row["stayers_accuracy"], row["newcomers_accuracy"]) == (0.0, 1.0)


def test_without_mixtures_every_client_uses_all_models_by_their_shares():
    federation = FakeFederation(FakeWorld({0: [0, 1]}), SURE)
    use = get_model_use(ServedModels(federation.models, np.array([0.5, 0.5, 0.0])), federation, 0)
    assert use.mixtures.get_rows([0, 1]).tolist() == [[0.5, 0.5, 0.0]] * 2


def test_the_view_of_a_client_is_that_of_the_round():
    federation = FakeFederation(FakeWorld({0: [0, 0], 3: [0, 1]}), SURE)
    served = ServedModels(federation.models, np.ones(3) / 3)
    assert get_model_use(served, federation, 2).views.tolist() == [0, 0]
    assert get_model_use(served, federation, 3).views.tolist() == [0, 1]
    assert get_model_use(served, federation, 3).concepts.tolist() == [0, 1]


def test_a_single_concept_has_no_concept_accuracy():
    row, _ = scored([1, 3], [[0, 1, 0], [1, 0, 0]])
    assert "concept_accuracy" not in row
