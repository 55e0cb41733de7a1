"""Tasks: one record for every view and every assignment of models."""

import json

import numpy as np
import pytest

from engine.drifting_world import FakeFederation, FakeWorld, some_data
from thalweg.core.mixtures import Mixtures
from thalweg.core.transforms import Dimmed, Mirrored, Plain, Rotated, Swapped
from thalweg.engine.per_client_eval import ScoreCache, get_model_use
from thalweg.engine.tasks import task_name, task_records
from thalweg.federation import ServedModels

SURE = [[0.1, 0.9], [0.9, 0.1]]  # white is class 1; black is


def records(views, mixtures, class_one_probs=SURE):
    federation = FakeFederation(FakeWorld({0: views}), class_one_probs)
    rows = np.array(mixtures)
    served = ServedModels(federation.models, rows.mean(axis=0), Mixtures.from_rows(rows))
    score_cache = ScoreCache(federation, served.models, some_data())
    found = task_records(score_cache, get_model_use(served, federation, 0), some_data())
    return {(each["task"], each["assignment"]): each for each in found}


def test_there_is_a_record_for_every_view_and_every_assignment():
    found = records([0, 1], [[1, 0], [0, 1]])
    tasks = ("1, plain", "2, plain", "1, inverted", "2, inverted")
    assert set(found) == {(task, how) for task in tasks for how in ("labels", "oracle")}
    assert json.loads(json.dumps(list(found.values())))


def test_labels_find_the_model_that_fits_also_where_an_oracle_of_concepts_does_not():
    # Client 0 has concept 1 with model 0. Inverted, that concept is right with model 1.
    found = records([0, 1], [[1, 0], [0, 1]])
    accuracies = {key: each["accuracy"] for key, each in found.items()}
    assert [accuracies[task, "labels"] for task in ("1, plain", "1, inverted")] == [1, 1]
    assert [accuracies[task, "oracle"] for task in ("1, plain", "1, inverted")] == [1, 0]


def test_the_oracle_has_no_accuracy_for_a_concept_without_clients():
    found = records([0, 0], [[1, 0], [1, 0]])
    assert found["2, plain", "oracle"]["accuracy"] is None
    assert found["2, plain", "labels"]["accuracy"] == 1


def test_records_count_the_clients_of_a_view():
    found = records([0, 0, 3], [[1, 0], [1, 0], [1, 0]])
    clients = {task: each["clients"] for (task, _), each in found.items()}
    assert clients == {"1, plain": 2, "2, plain": 0, "1, inverted": 0, "2, inverted": 1}


def test_a_single_model_has_the_same_accuracy_for_all_assignments():
    found = records([0, 1], [[1.0], [1.0]], SURE[:1])
    for task in ("1, plain", "2, plain", "1, inverted", "2, inverted"):
        assert found[task, "labels"]["accuracy"] == found[task, "oracle"]["accuracy"]


@pytest.mark.parametrize(
    ("transform", "concept", "expected"),
    [
        (Plain(), 0, "1, plain"),
        (Rotated(240), 3, "4, rotated 240"),
        (Rotated(22.5), 1, "2, rotated 22.5"),
        (Mirrored(), 0, "1, mirrored"),
        (Dimmed(0.5), 2, "3, dimmed 0.5"),
        (Swapped(0, 3), 0, "1, swapped 0 3"),
    ],
)
def test_tasks_have_readable_names(transform, concept, expected):
    assert task_name(transform, concept) == expected
