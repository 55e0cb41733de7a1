import numpy as np
import pytest
import torch

from contracts.model_probes import FakeModelProbe
from thalweg.local import Batch, Curvature, TaskLoss

BATCH = Batch(torch.zeros(1, 1, 1), torch.tensor([[0]]), torch.ones(1, 1))
FISHER = np.array([[1, 2], [3, 0], [0.5, 0.5]], dtype=np.float32)
PARAMS = np.array([[1, 1], [0, 2], [2, -1]], dtype=np.float32)


def constant_logits(params, x):
    return torch.zeros(1, 1, 2) + 0 * params.sum()


def collect_all(objective):
    server_state = objective.init_server(num_clients=3, num_params=2)
    uploads = {"fisher": FISHER, "fisher_params": FISHER * PARAMS}
    return objective.collect(server_state, np.array([0, 1, 2]), uploads)


def test_the_server_broadcasts_the_sum_over_all_other_clients():
    broadcast = Curvature().broadcast(collect_all(Curvature()), np.array([0, 2]))
    assert broadcast["others_fisher"].tolist() == [[3.5, 0.5], [4.0, 2.0]]
    assert broadcast["others_fisher_params"].tolist() == [[1.0, -0.5], [1.0, 2.0]]


def test_the_penalty_and_its_gradient_follow_the_formula():
    broadcast = Curvature().broadcast(collect_all(Curvature()), np.array([0]))
    memo = {name: torch.from_numpy(rows) for name, rows in broadcast.items()}
    params = torch.tensor([[0.5, 0.5]], requires_grad=True)
    loss = Curvature(0.01).loss(constant_logits, params, BATCH, memo)
    plain = TaskLoss().loss(constant_logits, params, BATCH, memo)
    assert float((loss - plain).detach()) == pytest.approx(0.005, abs=1e-6)
    (gradient,) = torch.autograd.grad(loss.sum(), params)
    assert gradient[0].tolist() == pytest.approx([0.015, 0.015], abs=1e-6)


def test_before_the_first_upload_there_is_no_penalty():
    objective = Curvature()
    assert objective.broadcast(objective.init_server(3, 2), np.array([0])) == {}
    params = torch.zeros(1, 2)
    plain = TaskLoss().loss(constant_logits, params, BATCH, {})
    assert torch.equal(objective.loss(constant_logits, params, BATCH, {}), plain)


def test_only_the_last_upload_of_a_client_counts():
    objective = Curvature()
    server_state = objective.collect(
        collect_all(objective),
        np.array([1]),
        {"fisher": np.array([[1.0, 1.0]]), "fisher_params": np.array([[5.0, 5.0]])},
    )
    assert server_state.senders.tolist() == [0, 1, 2]
    assert objective.broadcast(server_state, np.array([0]))["others_fisher"].tolist() == [
        [1.5, 1.5]
    ]


def test_a_broadcast_does_not_change_the_state():
    server_state, objective = collect_all(Curvature()), Curvature()
    objective.broadcast(server_state, np.array([0]))
    again = objective.broadcast(server_state, np.array([1]))["others_fisher"]
    assert again.tolist() == [[1.5, 2.5]]


def test_the_penalty_can_be_normalised_by_the_number_of_clients():
    objective = Curvature(normalise_by_clients=True)
    broadcast = objective.broadcast(collect_all(objective), np.array([0]))
    assert broadcast["others_fisher"].tolist() == [[1.75, 0.25]]


def test_a_client_uploads_its_fisher_information_and_the_product_with_its_parameters():
    uploads = Curvature().upload(
        FakeModelProbe(params=[2.0, -1.0], fisher=[0.5, 0.5]), np.arange(4)
    )
    assert uploads["fisher"].tolist() == [0.5, 0.5]
    assert uploads["fisher_params"].tolist() == [1.0, -0.5]
