import numpy as np
import pytest
import torch

from contracts.model_probes import FakeModelProbe
from thalweg.core.errors import UnknownName
from thalweg.local import (
    Batch,
    FinishesRound,
    ResetsPerSession,
    Scaffold,
    TaskLoss,
    TrainingSummary,
)
from thalweg.local.scaffold import ClientVariate, ServerVariate, effective_steps

BATCH = Batch(torch.zeros(1, 1, 1), torch.tensor([[0]]), torch.ones(1, 1))


def constant_logits(params, x):
    """Logits that do not depend on the parameters, so that only the correction has a gradient."""
    return torch.zeros(1, 1, 2) + 0 * params.sum()


def floats(*values):
    return np.array(values, dtype=np.float32)


def correction(objective, y, common, own, start=0.0):
    """Return what is added to the gradient at y."""
    params = torch.tensor([[y]], requires_grad=True)
    memo = {
        "start": torch.tensor([[start]]),
        "common": torch.tensor([[common]]),
        "own": torch.tensor([[own]]),
    }
    loss = objective.loss(constant_logits, params, BATCH, memo)
    return float(torch.autograd.grad(loss.sum(), params)[0])


def train(objective, x, common, own, gradient, lr=0.1, num_steps=2):
    """Return the parameter after plain steps on a loss with this gradient."""
    y = x
    for _ in range(num_steps):
        y -= lr * (gradient(y) + correction(objective, y, common, own, x))
    return y


def test_one_round_of_two_clients_follows_the_formulas():
    objective, x, c, lr = Scaffold(), 1.0, 0.2, 0.1
    owns, gradients = (0.5, -0.1), (lambda y: 2 * (y - 3), lambda y: y + 1)
    ys = [
        train(objective, x, c, own, gradient) for own, gradient in zip(owns, gradients, strict=True)
    ]
    assert ys == pytest.approx([1.774, 0.563], abs=1e-6)
    server_state = ServerVariate(floats(c), num_members=2)
    broadcast = {"common": objective.broadcast(server_state, np.array([0]))["common"][0]}
    done = [
        objective.finish_round(
            ClientVariate(floats(own)), broadcast, TrainingSummary(floats(x), floats(y), 2, lr, 0.0)
        )
        for own, y in zip(owns, ys, strict=True)
    ]
    assert [state.values[0] for state, _ in done] == pytest.approx([-3.57, 1.885], abs=2e-6)
    uploads = {"change": np.stack([sent["change"] for _, sent in done])}
    assert x + np.mean([y - x for y in ys]) == pytest.approx(1.1685, abs=1e-6)
    after = objective.collect(server_state, np.array([0, 1]), uploads)
    assert after.values[0] == pytest.approx(-0.8425, abs=2e-6)


def test_effective_steps_account_for_momentum():
    assert effective_steps(5, 0.9) == pytest.approx(13.1441, abs=1e-9)
    assert effective_steps(5, 0.0) == 5
    assert effective_steps(1, 0.9) == pytest.approx(1.0), "the first step has no velocity yet"


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_the_variate_of_a_constant_gradient_is_that_gradient(momentum):
    y, velocity, lr, gradient = 1.0, 0.0, 0.01, 3.0
    for _ in range(7):
        velocity = momentum * velocity + gradient
        y -= lr * velocity
    broadcast, summary = (
        {"common": floats(0.0)},
        TrainingSummary(floats(1.0), floats(y), 7, lr, momentum),
    )
    state, uploads = Scaffold().finish_round(ClientVariate(floats(0.0)), broadcast, summary)
    assert state.values[0] == pytest.approx(gradient, rel=1e-5)
    assert uploads["change"][0] == state.values[0]


def test_the_loss_at_the_received_model_is_the_cross_entropy():
    params = torch.tensor([[4.0]])
    memo = {"start": params, "common": torch.tensor([[9.0]]), "own": torch.tensor([[1.0]])}
    plain = TaskLoss().loss(constant_logits, params, BATCH, memo)
    assert torch.equal(Scaffold().loss(constant_logits, params, BATCH, memo), plain)


def test_a_session_starts_with_zero_variates_and_counts_its_members():
    objective = Scaffold()
    server_state = objective.init_server(num_clients=10, num_params=2)
    assert (server_state.values.tolist(), server_state.num_members) == ([0.0, 0.0], 10)
    old = server_state._replace(values=floats(1, 2))
    new = objective.start_session(old, floats(5, 5), np.array([2, 3, 7, 8]))
    assert (new.values.tolist(), new.num_members) == ([0.0, 0.0], 4)
    assert isinstance(objective, ResetsPerSession)
    assert objective.per_session


def test_the_server_divides_the_changes_by_the_number_of_members():
    objective = Scaffold()
    server_state = objective.start_session(objective.init_server(9, 1), floats(), np.arange(4))
    uploads = {"change": np.array([[1.0], [3.0]], dtype=np.float32)}
    assert (
        objective.collect(server_state, np.array([0, 1]), uploads).values[0] == 1.0
    )  # 2/4 of the mean, 2


def test_a_client_that_joins_in_mid_session_starts_at_zero():
    objective = Scaffold()
    state = objective.init(1)
    assert objective.memo(state, floats(1.0))["own"].tolist() == [0.0]
    assert correction(objective, 1.0, common=0.5, own=0.0) == 0.5
    summary = TrainingSummary(floats(1.0), floats(0.8), 2, 0.1, 0.0)
    state, uploads = objective.finish_round(state, {"common": floats(0.5)}, summary)
    assert state.values[0] == pytest.approx(0.5, abs=1e-6)  # 0 - 0.5 + 0.2 / (2 * 0.1)
    assert uploads["change"][0] == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize(("num_steps", "lr"), [(0, 0.1), (3, 0.0)])
def test_a_client_that_has_not_moved_uploads_a_change_of_zero(num_steps, lr):
    objective, state = Scaffold(), ClientVariate(floats(0.5, -1.0))
    summary = TrainingSummary(floats(1, 1), floats(1, 1), num_steps, lr, 0.9)
    after, uploads = objective.finish_round(state, {"common": floats(2, 2)}, summary)
    assert after is state
    assert uploads["change"].tolist() == [0.0, 0.0]
    server_state = ServerVariate(floats(2, 2), 3)
    after = objective.collect(server_state, np.array([0]), {"change": uploads["change"][None]})
    assert after.values.tolist() == [2.0, 2.0]


def test_the_variate_does_not_change_between_ticks():
    state = ClientVariate(floats(0.5))
    assert Scaffold().start_tick(state, FakeModelProbe([1.0]), np.arange(3), changed=True) is state


def test_the_released_variant_has_no_correction_and_ignores_momentum():
    objective = Scaffold("as_released")
    assert correction(objective, 1.0, common=0.2, own=0.5) == 0.0
    summary = TrainingSummary(floats(1.0), floats(0.5), 5, 0.1, momentum=0.9)
    state, uploads = objective.finish_round(
        ClientVariate(floats(0.3)), {"common": floats(0.2)}, summary
    )
    assert uploads["change"][0] == pytest.approx(0.8, abs=1e-6)  # 0.5 / (5 * 0.1) - 0.2
    assert state.values[0] == pytest.approx(1.1, abs=1e-6)
    assert isinstance(objective, FinishesRound)


def test_an_unknown_variant_is_rejected():
    with pytest.raises(UnknownName, match="Did you mean 'true'"):
        Scaffold("treu")
