"""The client part of serving."""

import numpy as np
import pytest

from contracts.checkpoint import to_comparable
from thalweg.aggregation import Averaged
from thalweg.core.errors import ConfigError
from thalweg.federation.serving import (
    ServingState,
    compute_scores,
    list_models,
    name_predictors,
    new_serving_state,
    read_averages,
    record_last,
    serve_samples,
)
from thalweg.memory import Fifo
from thalweg.recipes import Recipe
from thalweg.recipes.base import list_predictors
from thalweg.serving import BestRecent

PLAIN = Recipe("plain", memory=Fifo())
SERVED = Recipe("served", memory=Fifo(), serving=BestRecent())
UNADJUSTED = Recipe("unadjusted", memory=Fifo(), serving=BestRecent(adjusted=False))
AVERAGED = Recipe("averaged", memory=Fifo(), serving=BestRecent(), server=Averaged())
MODELS = np.arange(6, dtype=np.float32).reshape(2, 3)


def log(*probs):
    return np.log(np.array(probs, dtype=np.float32))


def test_the_predictors_of_a_recipe_depend_on_its_server_rule_and_its_policy():
    assert list_predictors(PLAIN) == ()
    assert list_predictors(SERVED) == ("latest", "trained", "last_label", "adjusted")
    assert list_predictors(AVERAGED) == ("latest", "averaged", "trained", "last_label", "adjusted")
    assert list_predictors(UNADJUSTED) == ("latest", "trained", "last_label")


def test_a_client_with_one_model_has_no_numbered_models():
    found = list_models(AVERAGED, 0, [0], MODELS[:1], MODELS[1:], None, known_models=0)
    assert [each.name for each in found] == ["latest", "averaged"]
    assert found[1].params.tolist() == [3, 4, 5]
    trained = list_models(SERVED, 0, [0], MODELS[:1], MODELS[1:], MODELS[1], known_models=0)
    assert [each.name for each in trained] == ["latest", "trained"]


def test_each_of_several_models_is_a_predictor_and_equal_models_have_equal_keys():
    found = list_models(AVERAGED, 1, [2, 5], MODELS, MODELS + 10, None, known_models=0)
    assert [each.name for each in found] == ["latest", "averaged", "model 2", "model 5"]
    assert found[0].key == found[3].key != found[2].key
    assert found[1].params.tolist() == [13, 14, 15]
    calls = []

    def score(params, rows):
        calls.append(params.tolist())
        return params[None, :2].repeat(len(rows), axis=0)

    scores = compute_scores(found, np.array([7, 8]), score)
    assert len(calls) == 3
    assert scores["latest"].tolist() == scores["model 5"].tolist() == [[3, 4], [3, 4]]


def test_averages_of_a_client_are_one_vector():
    received = {"serving": {"averages": MODELS.ravel()}}
    found = read_averages(received, 2)
    assert found is not None
    assert found.tolist() == MODELS.tolist()
    assert read_averages({}, 2) is None


def test_the_last_target_is_recorded():
    assert new_serving_state(None, np.array([1])) is None
    state = new_serving_state(BestRecent(), np.array([], dtype=np.int64))
    assert state is not None
    assert state.last.tolist() == []
    assert record_last(state, np.array([3, 4])).last.tolist() == [4]
    assert record_last(state, np.array([[1.0, 2.0]])).last.tolist() == [1, 2]


def test_weights_of_models_that_are_not_received_again_are_kept():
    state = ServingState(BestRecent().init(), np.array([1.0]))
    first = {"latest": log([0.9, 0.1]), "model 0": log([0.9, 0.1]), "model 1": log([0.1, 0.9])}
    previous = np.array([[1.0]])
    state, predicted = serve_samples(UNADJUSTED, state, first, np.array([1]), previous)
    assert predicted.tolist() == [1]
    assert (state.num_models, len(state.policy.weights)) == (2, 5)
    assert name_predictors(UNADJUSTED, state.num_models)[4] == "model 1"
    later, _ = serve_samples(
        UNADJUSTED, state, {"latest": first["latest"]}, np.array([0]), previous
    )
    assert (later.num_models, len(later.policy.weights)) == (2, 5)
    assert later.policy.weights[4] == pytest.approx(0.98 * state.policy.weights[4], abs=0.02)


def test_numbers_keep_the_shape_of_their_targets():
    state = ServingState(BestRecent().init(), np.empty(0))
    scores = {"latest": np.array([[1.0], [2.0]], dtype=np.float32)}
    targets = np.array([1.0, 2.0], dtype=np.float32)
    previous = np.array([[np.nan], [1.0]])
    _, predicted = serve_samples(SERVED, state, scores, targets, previous)
    assert predicted.shape == (2,)
    assert predicted[0] == 1.0, "there is no last number yet"


def test_numbers_have_no_adjusted_model():
    """All weights and predictions are those without it."""
    assert name_predictors(SERVED, 1, is_regression=True) == (
        *("latest", "trained", "last_label", "model 0"),
    )
    rng = np.random.default_rng(0)
    scores = {name: rng.normal(size=(20, 2)).astype(np.float32) for name in ("latest", "trained")}
    targets, previous = rng.normal(size=(20, 2)), rng.normal(size=(20, 2))
    with_it, without = (
        serve_samples(
            recipe, ServingState(recipe.serving.init(), np.empty(0)), scores, targets, previous
        )
        for recipe in (SERVED, UNADJUSTED)
    )
    assert with_it[1].tolist() == without[1].tolist()
    assert to_comparable(with_it[0]) == to_comparable(without[0])


def test_the_adjusted_model_follows_the_labels_of_the_client():
    """The model gives both classes equal probabilities; all labels are class 1."""
    scores, labels = {"latest": log(*[[0.5, 0.5]] * 200)}, np.ones(200, dtype=int)
    state = ServingState(BestRecent().init(), np.empty(0))
    recipe = Recipe("two", memory=Fifo(), serving=BestRecent(trained=False, last_label=False))
    nothing = np.full((200, 1), np.nan)
    state, predicted = serve_samples(recipe, state, scores, labels, nothing)
    assert predicted.tolist() == [0] * 10 + [1] * 190  # offsets change after ten samples
    assert state.policy.weights[1] > 0.9


class Broken(BestRecent):
    def serve(self, state, samples):
        return state, np.zeros(len(samples.targets) + 1)


def test_predictions_of_a_wrong_shape_are_rejected():
    recipe = Recipe("broken", memory=Fifo(), serving=Broken())
    state = ServingState(recipe.serving.init(), np.array([0.0]))
    with pytest.raises(ConfigError, match=r"Broken.serve must return predictions of shape \(1,\)"):
        serve_samples(recipe, state, {"latest": log([0.5, 0.5])}, np.array([0]), np.array([[0.0]]))
