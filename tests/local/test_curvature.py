import numpy as np
import pytest
import torch

from contracts.looks import FakeLook
from thalweg.local import Batch, CrossEntropy, Curvature

BATCH = Batch(torch.zeros(1, 1, 1), torch.tensor([[0]]), torch.ones(1, 1))
FISHER = np.array([[1, 2], [3, 0], [0.5, 0.5]], dtype=np.float32)
PARAMS = np.array([[1, 1], [0, 2], [2, -1]], dtype=np.float32)


def deaf(params, x):
    return torch.zeros(1, 1, 2) + 0 * params.sum()


def heard_all(objective):
    notes = objective.begin(num_clients=3, num_params=2)
    said = {"fisher": FISHER, "pulled": FISHER * PARAMS}
    return objective.hear(notes, np.array([0, 1, 2]), said)


def test_the_server_sums_up_everybody_but_the_client_itself():
    told = Curvature().tell(heard_all(Curvature()), np.array([0, 2]))
    assert told["others_fisher"].tolist() == [[3.5, 0.5], [4.0, 2.0]]
    assert told["others_pulled"].tolist() == [[1.0, -0.5], [1.0, 2.0]]


def test_the_pull_of_the_sheet():
    told = Curvature().tell(heard_all(Curvature()), np.array([0]))
    memo = {name: torch.from_numpy(rows) for name, rows in told.items()}
    params = torch.tensor([[0.5, 0.5]], requires_grad=True)
    loss = Curvature(0.01).loss(deaf, params, BATCH, memo)
    plain = CrossEntropy().loss(deaf, params, BATCH, memo)
    assert float((loss - plain).detach()) == pytest.approx(0.005, abs=1e-6)
    (slope,) = torch.autograd.grad(loss.sum(), params)
    assert slope[0].tolist() == pytest.approx([0.015, 0.015], abs=1e-6)


def test_before_anybody_has_spoken_nothing_pulls():
    objective = Curvature()
    assert objective.tell(objective.begin(3, 2), np.array([0])) == {}
    params = torch.zeros(1, 2)
    plain = CrossEntropy().loss(deaf, params, BATCH, {})
    assert torch.equal(objective.loss(deaf, params, BATCH, {}), plain)


def test_only_the_newest_message_of_a_client_counts():
    objective = Curvature()
    notes = objective.hear(
        heard_all(objective),
        np.array([1]),
        {"fisher": np.array([[1.0, 1.0]]), "pulled": np.array([[5.0, 5.0]])},
    )
    assert notes.who.tolist() == [0, 1, 2]
    assert objective.tell(notes, np.array([0]))["others_fisher"].tolist() == [[1.5, 1.5]]


def test_telling_one_client_does_not_change_what_the_next_is_told():
    notes, objective = heard_all(Curvature()), Curvature()
    objective.tell(notes, np.array([0]))
    again = objective.tell(notes, np.array([1]))["others_fisher"]
    assert again.tolist() == [[1.5, 2.5]]


def test_the_strength_can_be_divided_by_the_clients_heard():
    objective = Curvature(normalise_by_clients=True)
    told = objective.tell(heard_all(objective), np.array([0]))
    assert told["others_fisher"].tolist() == [[1.75, 0.25]]


def test_a_client_sends_its_importance_and_its_product_with_the_parameters():
    said = Curvature().say(FakeLook(params=[2.0, -1.0], fisher=[0.5, 0.5]), np.arange(4))
    assert said["fisher"].tolist() == [0.5, 0.5]
    assert said["pulled"].tolist() == [1.0, -0.5]
