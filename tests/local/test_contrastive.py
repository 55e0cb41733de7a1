import math

import numpy as np
import pytest
import torch

from contracts.model_probes import FakeModelProbe
from contracts.objective import value
from thalweg.core.errors import ConfigError
from thalweg.engine.models import NetModel
from thalweg.local import Batch, Moon, ResetsPerSession, TaskLoss, TrainingSummary
from thalweg.local.contrastive import LastModel, contrasts
from thalweg.nets import HamCnn, Linear, Mlp, ResNet18

BATCH = Batch(torch.zeros(1, 1, 1), torch.tensor([[0]]), torch.ones(1, 1))


class FeaturesAreParams:
    """Two logits that are always equal, and features that are the parameters."""

    def with_features(self, params, x):
        return torch.zeros(1, 1, 2) + 0 * params.sum(), params[:, None, :]


@pytest.mark.parametrize(("temperature", "contrast"), [(1.0, 0.344378), (0.5, 0.156160)])
def test_the_loss_is_cross_entropy_plus_the_weighted_contrastive_term(temperature, contrast):
    memo = {"start": torch.tensor([[2.0, 1.0, 2.0]]), "previous": torch.tensor([[2.0, -1.0, 0.0]])}
    objective = Moon(strength=1.0, temperature=temperature)
    loss = objective.loss(FeaturesAreParams(), torch.tensor([[1.0, 2.0, 2.0]]), BATCH, memo)
    assert float(loss) == pytest.approx(math.log(2) + contrast, abs=1e-6)
    doubled = Moon(2.0, temperature).loss(
        FeaturesAreParams(), torch.tensor([[1.0, 2.0, 2.0]]), BATCH, memo
    )
    assert float(doubled) == pytest.approx(math.log(2) + 2 * contrast, abs=1e-6)


def test_no_gradient_flows_into_the_received_or_the_last_model():
    start, previous = (torch.rand(1, 3, requires_grad=True) for _ in range(2))
    params = torch.rand(1, 3, requires_grad=True)
    memo = {"start": start, "previous": previous}
    Moon().loss(FeaturesAreParams(), params, BATCH, memo).sum().backward()
    assert start.grad is None
    assert previous.grad is None
    assert params.grad is not None


def test_in_the_first_round_the_contrastive_term_is_constant():
    objective = Moon()
    start = np.array([1.0, 2.0], dtype=np.float32)
    assert objective.memo(objective.init(2), start)["previous"] is start
    net = Mlp(hidden=(5,)).build((4,), 3)
    rng = np.random.default_rng(0)
    begun = torch.tensor(net.init(rng), dtype=torch.float64)[None]
    params = begun + 0.1
    batch = Batch(
        torch.tensor(rng.normal(size=(1, 6, 4))),
        torch.tensor(rng.integers(0, 3, (1, 6))),
        torch.full((1, 6), 1 / 6, dtype=torch.float64),
    )
    memo = {"start": begun, "previous": begun}
    loss, gradient = value(objective, net, params, memo, batch)
    plain, plain_gradient = value(TaskLoss(), net, params, memo, batch)
    torch.testing.assert_close(loss, plain + math.log(2))
    torch.testing.assert_close(gradient, plain_gradient)


def test_the_last_model_is_that_of_the_last_round_with_steps():
    objective, state = Moon(), LastModel(np.array([7.0], dtype=np.float32))
    summary = TrainingSummary(np.zeros(1, "f4"), np.array([3.0], dtype=np.float32), 2, 0.1, 0.9)
    after, uploads = objective.finish_round(state, {}, summary)
    assert (after.params.tolist(), uploads) == ([3.0], {})
    assert objective.memo(after, np.zeros(1, "f4"))["previous"].tolist() == [3.0]
    idle, _ = objective.finish_round(state, {}, summary._replace(num_steps=0))
    assert idle is state, "a round without a step changes nothing"
    assert objective.start_tick(state, FakeModelProbe([1.0]), np.arange(3), changed=True) is state


def test_the_last_model_is_reset_per_session_only_on_request():
    assert isinstance(Moon(), ResetsPerSession)
    assert not Moon().per_session
    assert Moon(per_session=True).per_session


def test_zero_features_have_cosine_zero():
    z = torch.zeros(1, 1, 3, dtype=torch.float64)
    other = torch.ones(1, 1, 3, dtype=torch.float64)
    assert float(contrasts(z, other, -other, 1.0)) == pytest.approx(math.log(2))
    assert torch.isfinite(contrasts(other, z, z, 0.01)).all()


@pytest.mark.parametrize(
    "net",
    [
        HamCnn(channels=(2, 2, 2), hidden=4).build((1, 8, 8), 3),
        ResNet18().build((3, 8, 8), 3),
    ],
    ids=["dropout", "residual"],
)
def test_any_net_with_a_dense_last_layer_is_supported(net):
    rng = np.random.default_rng(0)
    begun = torch.tensor(net.init(rng))[None]
    params = (begun + 0.01).requires_grad_()
    batch = Batch(
        torch.tensor(rng.normal(size=(1, 2, *net.input_shape)).astype(np.float32)),
        torch.tensor([[0, 2]]),
        torch.full((1, 2), 0.5),
    )
    model = NetModel(net, False, [3])
    loss = Moon().loss(model, params, batch, {"start": begun, "previous": begun - 0.01})
    (gradient,) = torch.autograd.grad(loss.sum(), params)
    assert torch.isfinite(gradient).all()


def test_the_features_of_a_linear_net_are_its_logits():
    model = NetModel(Linear().build((2,), 2), True)
    batch = Batch(torch.tensor([[[1.0, 2.0]]]), torch.tensor([[1]]), torch.ones(1, 1))

    def diagonal(a, b):  # weight and bias of a net with the logits (a, 2 b)
        return torch.tensor([[a, 0.0, 0.0, b, 0.0, 0.0]])

    memo = {"start": diagonal(2.0, 0.5), "previous": diagonal(-2.0, 0.5)}
    loss = Moon().loss(model, diagonal(1.0, 1.0), batch, memo)
    # logits (1, 2); (2, 1) with cosine 4/5; (-2, 1) with cosine 0
    assert float(loss) == pytest.approx(math.log1p(math.exp(-1)) + math.log1p(math.exp(-0.8)))


def test_a_model_without_features_is_rejected():
    memo = {"start": torch.zeros(1, 2), "previous": torch.zeros(1, 2)}
    with pytest.raises(ConfigError, match="has no method with_features"):
        Moon().loss(lambda params, x: params[:, None], torch.zeros(1, 2), BATCH, memo)


def test_invalid_parameters_are_rejected():
    with pytest.raises(ConfigError, match="temperature must be positive"):
        Moon(temperature=0.0)
