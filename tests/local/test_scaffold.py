import numpy as np
import pytest
import torch

from contracts.model_probes import FakeModelProbe
from thalweg.core.errors import UnknownName
from thalweg.local import (
    Batch,
    CrossEntropy,
    FinishesRound,
    ResetsPerSession,
    Scaffold,
    TrainingSummary,
)
from thalweg.local.scaffold import ClientVariate, ServerVariate, effective_steps

BATCH = Batch(torch.zeros(1, 1, 1), torch.tensor([[0]]), torch.ones(1, 1))


def deaf(params, x):
    """Logits that do not depend on the parameters, so that only the correction pulls."""
    return torch.zeros(1, 1, 2) + 0 * params.sum()


def floats(*values):
    return np.array(values, dtype=np.float32)


def correction(objective, y, common, own, start=0.0):
    """What is added to the gradient at y."""
    params = torch.tensor([[y]], requires_grad=True)
    memo = {
        "start": torch.tensor([[start]]),
        "common": torch.tensor([[common]]),
        "own": torch.tensor([[own]]),
    }
    loss = objective.loss(deaf, params, BATCH, memo)
    return float(torch.autograd.grad(loss.sum(), params)[0])


def trained(objective, x, common, own, slope, lr=0.1, num_steps=2):
    """A client whose loss has this slope, by plain steps."""
    y = x
    for _ in range(num_steps):
        y -= lr * (slope(y) + correction(objective, y, common, own, x))
    return y


def test_the_scalar_example_of_the_sheet():
    objective, x, c, lr = Scaffold(), 1.0, 0.2, 0.1
    owns, slopes = (0.5, -0.1), (lambda y: 2 * (y - 3), lambda y: y + 1)
    ys = [trained(objective, x, c, own, slope) for own, slope in zip(owns, slopes, strict=True)]
    assert ys == pytest.approx([1.774, 0.563], abs=1e-6)
    notes = ServerVariate(floats(c), num_members=2)
    broadcast = {"common": objective.broadcast(notes, np.array([0]))["common"][0]}
    done = [
        objective.finish_round(
            ClientVariate(floats(own)), broadcast, TrainingSummary(floats(x), floats(y), 2, lr, 0.0)
        )
        for own, y in zip(owns, ys, strict=True)
    ]
    assert [state.values[0] for state, _ in done] == pytest.approx([-3.57, 1.885], abs=2e-6)
    uploads = {"change": np.stack([words["change"] for _, words in done])}
    assert x + np.mean([y - x for y in ys]) == pytest.approx(1.1685, abs=1e-6)
    after = objective.collect(notes, np.array([0, 1]), uploads)
    assert after.values[0] == pytest.approx(-0.8425, abs=2e-6)


def test_momentum_makes_a_step_worth_more():
    assert effective_steps(5, 0.9) == pytest.approx(13.1441, abs=1e-9)
    assert effective_steps(5, 0.0) == 5
    assert effective_steps(1, 0.9) == pytest.approx(1.0), "the first step has no velocity yet"


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_of_a_constant_gradient_the_client_learns_that_gradient(momentum):
    y, velocity, lr, slope = 1.0, 0.0, 0.01, 3.0
    for _ in range(7):
        velocity = momentum * velocity + slope
        y -= lr * velocity
    broadcast, summary = (
        {"common": floats(0.0)},
        TrainingSummary(floats(1.0), floats(y), 7, lr, momentum),
    )
    state, uploads = Scaffold().finish_round(ClientVariate(floats(0.0)), broadcast, summary)
    assert state.values[0] == pytest.approx(slope, rel=1e-5)
    assert uploads["change"][0] == state.values[0]


def test_the_loss_of_a_client_that_has_not_moved_is_the_cross_entropy():
    params = torch.tensor([[4.0]])
    memo = {"start": params, "common": torch.tensor([[9.0]]), "own": torch.tensor([[1.0]])}
    plain = CrossEntropy().loss(deaf, params, BATCH, memo)
    assert torch.equal(Scaffold().loss(deaf, params, BATCH, memo), plain)


def test_a_session_begins_with_variates_of_zero_and_counts_its_members():
    objective = Scaffold()
    notes = objective.init_server(num_clients=10, num_params=2)
    assert (notes.values.tolist(), notes.num_members) == ([0.0, 0.0], 10)
    old = notes._replace(values=floats(1, 2))
    new = objective.start_session(old, floats(5, 5), np.array([2, 3, 7, 8]))
    assert (new.values.tolist(), new.num_members) == ([0.0, 0.0], 4)
    assert isinstance(objective, ResetsPerSession)
    assert objective.per_session


def test_only_a_share_of_the_members_moves_the_common_variate_by_that_share():
    objective = Scaffold()
    notes = objective.start_session(objective.init_server(9, 1), floats(), np.arange(4))
    uploads = {"change": np.array([[1.0], [3.0]], dtype=np.float32)}
    assert (
        objective.collect(notes, np.array([0, 1]), uploads).values[0] == 1.0
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
def test_who_has_not_moved_keeps_its_variate_and_says_that_nothing_changed(num_steps, lr):
    objective, state = Scaffold(), ClientVariate(floats(0.5, -1.0))
    summary = TrainingSummary(floats(1, 1), floats(1, 1), num_steps, lr, 0.9)
    after, uploads = objective.finish_round(state, {"common": floats(2, 2)}, summary)
    assert after is state
    assert uploads["change"].tolist() == [0.0, 0.0]
    notes = ServerVariate(floats(2, 2), 3)
    heard = objective.collect(notes, np.array([0]), {"change": uploads["change"][None]})
    assert heard.values.tolist() == [2.0, 2.0]


def test_what_a_client_knows_does_not_change_between_ticks():
    state = ClientVariate(floats(0.5))
    assert Scaffold().start_tick(state, FakeModelProbe([1.0]), np.arange(3), changed=True) is state


def test_the_released_variant_corrects_nothing_and_counts_steps_without_momentum():
    objective = Scaffold("as_released")
    assert correction(objective, 1.0, common=0.2, own=0.5) == 0.0
    summary = TrainingSummary(floats(1.0), floats(0.5), 5, 0.1, momentum=0.9)
    state, uploads = objective.finish_round(
        ClientVariate(floats(0.3)), {"common": floats(0.2)}, summary
    )
    assert uploads["change"][0] == pytest.approx(0.8, abs=1e-6)  # 0.5 / (5 * 0.1) - 0.2
    assert state.values[0] == pytest.approx(1.1, abs=1e-6)
    assert isinstance(objective, FinishesRound)


def test_an_unknown_variant_is_refused():
    with pytest.raises(UnknownName, match="Did you mean 'true'"):
        Scaffold("treu")
