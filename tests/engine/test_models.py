import numpy as np
import pytest
import torch
from torch import nn

from thalweg.core.errors import ConfigError
from thalweg.core.types import Job
from thalweg.engine.models import ModuleLeaves, NetModel
from thalweg.engine.step_seeds import noise_seeds, step_seeds
from thalweg.local import with_features, with_trained_features, without_dropout
from thalweg.nets import Linear, Mlp, Module, Net, build_net
from thalweg.nets.dropout import Dropout
from thalweg.nets.layers import Dense, Relu
from thalweg.nets.module_net import ModuleNet

NET = Net((Dropout(0.5), Dense("fc", 20, 2)), (20,))


def logits(seeds, steps, is_stacked):
    model = NetModel(NET, is_stacked, step_seeds(np.array(seeds), np.array(steps)))
    params = torch.tensor(NET.init(np.random.default_rng(0))).expand(len(seeds), -1)
    return model, model(params, torch.ones(len(seeds), 3, 20)), params


def test_dropout_of_a_client_is_the_same_alone_and_in_a_stack():
    _, together, _ = logits([5, 9], [0, 3], True)
    for k, (seed, step) in enumerate([(5, 0), (9, 3)]):
        _, alone, _ = logits([seed], [step], False)
        torch.testing.assert_close(together[k], alone[0])


def test_dropout_differs_between_steps_and_clients():
    _, first, _ = logits([5, 6], [0, 0], True)
    _, next_step, _ = logits([5, 6], [10, 10], True)
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], next_step[0])


@pytest.mark.parametrize("is_stacked", [True, False])
def test_a_teacher_has_no_dropout(is_stacked):
    model, _, params = logits([5], [0], is_stacked)
    x = torch.ones(1, 3, 20)
    torch.testing.assert_close(without_dropout(model)(params, x)[0], NET.apply(params[0], x[0]))


@pytest.mark.parametrize("is_stacked", [True, False])
def test_features_are_what_the_last_layer_reads_of_the_same_model(is_stacked):
    net = Mlp(hidden=(5,)).build((4,), 3)
    rng = np.random.default_rng(0)
    params = torch.tensor(np.stack([net.init(rng) for _ in range(2)]))
    x = torch.tensor(rng.normal(size=(2, 6, 4)).astype(np.float32))
    model = NetModel(net, is_stacked)
    said, features = with_features(model)(params, x)
    assert features.shape == (2, 6, 5)
    torch.testing.assert_close(said, model(params, x))
    last = net.named_parameters(params[1].numpy())
    by_hand = features[1].numpy() @ last["fc2.weight"].T + last["fc2.bias"]
    np.testing.assert_allclose(said[1].numpy(), by_hand, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_stacked", [True, False])
def test_features_of_a_model_in_training_have_its_dropout(is_stacked):
    model, said, params = logits([5, 9], [0, 3], is_stacked)
    again, features = model.with_features(params, torch.ones(2, 3, 20))
    torch.testing.assert_close(again, said)
    assert set(features.unique().tolist()) == {0.0, 2.0}, "half of the inputs are gone"
    _, whole = without_dropout(model).with_features(params, torch.ones(2, 3, 20))
    assert set(whole.unique().tolist()) == {1.0}


def test_logits_take_the_place_of_features_that_are_not_trained():
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(2, 6, 4)).astype(np.float32))
    for spec, width in ((Linear(), 3), (Mlp(hidden=(5,)), 5)):
        net = spec.build((4,), 3)
        params = torch.tensor(np.stack([net.init(rng) for _ in range(2)]))
        said, features = with_trained_features(NetModel(net, True))(params, x)
        assert features.shape == (2, 6, width)
        assert torch.equal(said, NetModel(net, True)(params, x))
        assert (width == 3) == torch.equal(said, features)


def test_a_net_without_a_dense_end_has_no_features():
    net = Net((Dense("fc", 4, 2), Relu()), (4,))
    params = torch.tensor(net.init(np.random.default_rng(0)))[None]
    with pytest.raises(ConfigError, match="expected a Dense layer at the end, got Relu"):
        NetModel(net, False).with_features(params, torch.zeros(1, 1, 4))


def test_a_plain_function_has_no_features_and_the_error_says_what_to_do():
    with pytest.raises(ConfigError, match=r"no method with_features\. Add one"):
        with_features(lambda params, x: params)


def test_seeds_depend_on_the_client_and_the_round_only():
    both = noise_seeds(1, [Job(3), Job(7)], 2)
    assert both[1] == noise_seeds(1, [Job(7, model=1, lr_scale=0.5)], 2)[0]
    assert both[0] != both[1]
    assert both[0] != noise_seeds(1, [Job(3)], 3)[0]


class Partial(nn.Module):
    """One layer is trained, one has no effect, one is frozen; a buffer is at the end."""

    def __init__(self):
        super().__init__()
        self.unused, self.first = nn.Linear(2, 2), nn.Linear(4, 3)
        self.frozen, self.norm = nn.Linear(3, 3).requires_grad_(False), nn.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(self.frozen(torch.tanh(self.first(x))))


def test_gradients_of_the_tensors_are_those_of_the_vector():
    net = build_net(Module("python:Partial", source=Partial), (4,), 3)
    assert isinstance(net, ModuleNet)
    params = torch.tensor(net.init(np.random.default_rng(0)))[None]
    x = torch.randn(1, 5, 4, generator=torch.Generator().manual_seed(0))

    def loss(model, vector):
        return model(vector, x).square().mean() + (vector[:, :9] * torch.arange(9)).sum()

    leaves = ModuleLeaves(net, params)
    vector = params.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(NetModel(net, False, [3]), vector), vector)
    found = leaves.compute_gradient(loss(NetModel(net, False, [3], leaves), leaves.params))
    torch.testing.assert_close(found, expected)
    assert found[0, :6].tolist() == [0, 1, 2, 3, 4, 5], "the unused layer has the second term only"
    named = net.named_parameters(found[0].numpy())
    assert named["first.weight"].all()
    assert not named["frozen.weight"].any()
    assert not named["norm.running_mean"].any()


def test_tensors_of_a_module_are_in_the_memory_of_the_vector():
    net = build_net(Module("python:Partial", source=Partial), (4,), 3)
    params = torch.zeros(1, net.num_params)
    leaves = ModuleLeaves(net, params)
    params += 1
    assert all((piece == 1).all() for piece in leaves.tensors)
