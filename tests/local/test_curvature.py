import numpy as np
import pytest
import torch

from contracts.model_probes import FakeModelProbe
from thalweg.local import Batch, CrossEntropy, Curvature

BATCH = Batch(torch.zeros(1, 1, 1), torch.tensor([[0]]), torch.ones(1, 1))
FISHER = np.array([[1, 2], [3, 0], [0.5, 0.5]], dtype=np.float32)
PARAMS = np.array([[1, 1], [0, 2], [2, -1]], dtype=np.float32)


def deaf(params, x):
    return torch.zeros(1, 1, 2) + 0 * params.sum()


def heard_all(objective):
    notes = objective.init_server(num_clients=3, num_params=2)
    uploads = {"fisher": FISHER, "fisher_params": FISHER * PARAMS}
    return objective.collect(notes, np.array([0, 1, 2]), uploads)


def test_the_server_sums_up_everybody_but_the_client_itself():
    broadcast = Curvature().broadcast(heard_all(Curvature()), np.array([0, 2]))
    assert broadcast["others_fisher"].tolist() == [[3.5, 0.5], [4.0, 2.0]]
    assert broadcast["others_fisher_params"].tolist() == [[1.0, -0.5], [1.0, 2.0]]


def test_the_pull_of_the_sheet():
    broadcast = Curvature().broadcast(heard_all(Curvature()), np.array([0]))
    memo = {name: torch.from_numpy(rows) for name, rows in broadcast.items()}
    params = torch.tensor([[0.5, 0.5]], requires_grad=True)
    loss = Curvature(0.01).loss(deaf, params, BATCH, memo)
    plain = CrossEntropy().loss(deaf, params, BATCH, memo)
    assert float((loss - plain).detach()) == pytest.approx(0.005, abs=1e-6)
    (slope,) = torch.autograd.grad(loss.sum(), params)
    assert slope[0].tolist() == pytest.approx([0.015, 0.015], abs=1e-6)


def test_before_anybody_has_spoken_nothing_pulls():
    objective = Curvature()
    assert objective.broadcast(objective.init_server(3, 2), np.array([0])) == {}
    params = torch.zeros(1, 2)
    plain = CrossEntropy().loss(deaf, params, BATCH, {})
    assert torch.equal(objective.loss(deaf, params, BATCH, {}), plain)


def test_only_the_newest_message_of_a_client_counts():
    objective = Curvature()
    notes = objective.collect(
        heard_all(objective),
        np.array([1]),
        {"fisher": np.array([[1.0, 1.0]]), "fisher_params": np.array([[5.0, 5.0]])},
    )
    assert notes.senders.tolist() == [0, 1, 2]
    assert objective.broadcast(notes, np.array([0]))["others_fisher"].tolist() == [[1.5, 1.5]]


def test_telling_one_client_does_not_change_what_the_next_is_told():
    notes, objective = heard_all(Curvature()), Curvature()
    objective.broadcast(notes, np.array([0]))
    again = objective.broadcast(notes, np.array([1]))["others_fisher"]
    assert again.tolist() == [[1.5, 2.5]]


def test_the_strength_can_be_divided_by_the_clients_heard():
    objective = Curvature(normalise_by_clients=True)
    broadcast = objective.broadcast(heard_all(objective), np.array([0]))
    assert broadcast["others_fisher"].tolist() == [[1.75, 0.25]]


def test_a_client_sends_its_importance_and_its_product_with_the_parameters():
    uploads = Curvature().upload(
        FakeModelProbe(params=[2.0, -1.0], fisher=[0.5, 0.5]), np.arange(4)
    )
    assert uploads["fisher"].tolist() == [0.5, 0.5]
    assert uploads["fisher_params"].tolist() == [1.0, -0.5]
