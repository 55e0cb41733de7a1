"""Tests that single and stacked nets match plain PyTorch modules with the same weights."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from thalweg.core.errors import ConfigError, ShapeMismatch
from thalweg.nets import (
    AlexNet,
    CharRnn,
    Cnn,
    FastText,
    HamCnn,
    LeNet5,
    Linear,
    Mlp,
    Net,
    ResNet10,
    ResNet18,
)
from thalweg.nets.layers import Dense, Flatten, Relu


def linear():
    return nn.Linear(20, 3)


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 7), nn.ReLU(), nn.Linear(7, 3))


def lenet5(padding, first, second):
    return nn.Sequential(
        *(nn.Conv2d(first, 6, 5, padding=padding[0]), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5, padding=padding[1]), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(second, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 3)),
    )


def cnn(inputs, features):
    blocks = []
    for come, go in ((inputs, 16), (16, 32), (32, 64)):
        blocks += [nn.Conv2d(come, go, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(
        *blocks, nn.Flatten(), nn.Linear(features, 128), nn.ReLU(), nn.Linear(128, 3)
    )


def alexnet(c, features):
    """Pooling after the first, the second and the fifth convolution."""
    pool = nn.MaxPool2d(2)
    return nn.Sequential(
        *(nn.Conv2d(3, c[0], 3, padding=1), nn.ReLU(), pool),
        *(nn.Conv2d(c[0], c[1], 3, padding=1), nn.ReLU(), pool),
        *(nn.Conv2d(c[1], c[2], 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(c[2], c[3], 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(c[3], c[4], 3, padding=1), nn.ReLU(), pool, nn.Flatten()),
        *(nn.Linear(features, 9), nn.ReLU(), nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 3)),
    )


class BasicBlock(nn.Module):
    def __init__(self, come, go, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(come, go, 3, stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(2, go)
        self.conv2 = nn.Conv2d(go, go, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(2, go)
        self.shortcut = nn.Sequential()
        if stride != 1 or come != go:
            self.shortcut = nn.Sequential(
                nn.Conv2d(come, go, 1, stride, bias=False), nn.GroupNorm(2, go)
            )

    def forward(self, x):
        y = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))
        return (y + self.shortcut(x)).relu()


def resnet(blocks):
    layers, come = [nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.GroupNorm(2, 4), nn.ReLU()], 4
    for stage in range(4):
        for number in range(blocks):
            layers.append(BasicBlock(come, 4 * 2**stage, 2 if stage and not number else 1))
            come = 4 * 2**stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 3))


CASES = {
    "ham-cnn": (HamCnn((16, 32, 64)), (3, 8, 8), lambda: cnn(3, 64)),
    "alexnet": (
        AlexNet((2, 3, 4, 5, 6), hidden=9),
        (3, 16, 17),
        lambda: alexnet((2, 3, 4, 5, 6), 24),
    ),
    "resnet10": (ResNet10(width=4, groups=2), (3, 9, 8), lambda: resnet(1)),
    "resnet18": (ResNet18(width=4, groups=2), (3, 8, 8), lambda: resnet(2)),
    "linear": (Linear(), (20,), linear),
    "mlp": (Mlp(hidden=(7,)), (3, 4, 4), mlp),
    "lenet5 28": (LeNet5(), (1, 28, 28), lambda: lenet5((2, 0), 1, 400)),
    "lenet5 8": (LeNet5(), (1, 8, 8), lambda: lenet5((2, 2), 1, 64)),
    "lenet5 32 colour": (LeNet5(), (3, 32, 32), lambda: lenet5((0, 0), 3, 400)),
    "lenet5 odd": (LeNet5(), (1, 15, 19), lambda: lenet5((2, 0), 1, 16 * 1 * 2)),
    "cnn 8": (Cnn(), (3, 8, 8), lambda: cnn(3, 64)),
    "cnn odd": (Cnn(), (1, 13, 10), lambda: cnn(1, 64)),
}


@pytest.fixture(params=CASES)
def case(request):
    """A net, K = 3 modules of the same architecture, their parameters (K, P), and inputs."""
    spec, shape, module = CASES[request.param]
    torch.manual_seed(1)
    net = spec.build(shape, 3)
    modules = [module().double() for _ in range(3)]
    params = torch.stack([nn.utils.parameters_to_vector(m.parameters()).detach() for m in modules])
    return net, modules, params, torch.randn(3, 5, *shape, dtype=torch.float64)


def test_flat_parameter_vector_has_the_order_of_pytorch(case):
    net, modules, params, _ = case
    named = net.named_parameters(params[0].numpy())
    theirs = list(modules[0].parameters())
    assert len(named) == len(theirs)
    for ours, piece in zip(named.values(), theirs, strict=True):
        assert np.array_equal(ours, piece.detach().numpy())


def test_single_and_stacked_outputs_match_pytorch(case):
    net, modules, params, x = case
    plain = torch.stack([module(mine) for module, mine in zip(modules, x, strict=True)])
    single = torch.stack([net.apply(p, mine) for p, mine in zip(params, x, strict=True)])
    torch.testing.assert_close(single, plain)
    torch.testing.assert_close(net.apply_stacked(params, x), plain)


def test_single_and_stacked_gradients_match_pytorch(case):
    net, modules, params, x = case
    labels = torch.tensor([0, 1, 2, 2, 1])
    params.requires_grad_()
    for k, module in enumerate(modules):
        cross_entropy(module(x[k]), labels).backward()
        plain = nn.utils.parameters_to_vector([p.grad for p in module.parameters()])
        (single,) = torch.autograd.grad(cross_entropy(net.apply(params[k], x[k]), labels), params)
        torch.testing.assert_close(single[k], plain)
        loss = cross_entropy(net.apply_stacked(params, x)[k], labels)
        (stacked,) = torch.autograd.grad(loss, params)
        torch.testing.assert_close(stacked[k], plain)
        assert stacked.count_nonzero() == stacked[k].count_nonzero()  # other models get no gradient


@pytest.mark.parametrize("memory", ["as given", "batch innermost"])
def test_memory_layout_of_inputs_does_not_change_outputs(case, memory):
    net, _, params, x = case
    if memory == "batch innermost":
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    torch.testing.assert_close(net.apply_stacked(params, x), net.apply_stacked(params, x.clone()))


@pytest.mark.parametrize(
    ("spec", "shape"), [(LeNet5(), (1, 8, 8)), (Mlp(hidden=(4,)), (6,)), (Cnn(), (1, 8, 8))]
)
def test_gradients_match_finite_differences(spec, shape):
    rng = np.random.default_rng(5)
    net = spec.build(shape, 3)
    params = torch.tensor(np.stack([net.init(rng), net.init(rng)]), dtype=torch.float64)
    x = torch.tensor(rng.standard_normal((2, 4, *shape)))
    labels = torch.tensor([0, 1, 2, 0])

    def loss(params):
        logits = net.apply_stacked(params, x)
        return cross_entropy(logits[0], labels) + 2 * cross_entropy(logits[1], labels)

    params.requires_grad_()
    (gradient,) = torch.autograd.grad(loss(params), params)
    with torch.no_grad():
        for _ in range(5):
            direction = torch.tensor(rng.standard_normal(params.shape)) / params.numel() ** 0.5
            step = 1e-6 * direction
            slope = (loss(params + step) - loss(params - step)) / 2e-6
            assert float(slope) == pytest.approx(float((gradient * direction).sum()), rel=1e-5)


def test_features_are_the_input_of_the_last_layer(case):
    net, _, params, x = case
    logits, features = net.with_features(params[0], x[0])
    assert torch.equal(logits, net.apply(params[0], x[0]))
    named = list(net.named_parameters(params[0].numpy()).values())
    weight, bias = (torch.tensor(piece) for piece in named[-2:])
    assert features.shape == (5, weight.shape[1])
    torch.testing.assert_close(features @ weight.T + bias, logits)


def test_features_need_a_final_dense_layer():
    net = Net((Dense("fc", 2, 2), Relu()), (2,))
    with pytest.raises(ConfigError, match="Dense layer at the end, got Relu"):
        net.with_features(torch.zeros(6), torch.zeros(1, 2))


def test_initial_parameters_are_drawn_in_a_fixed_order():
    # Published results depend on this draw order: weight and bias of each layer in turn.
    net = Mlp(hidden=(3,)).build((4,), 2)
    rng = np.random.default_rng(7)
    drawn = [
        rng.uniform(-(n**-0.5), n**-0.5, size) for n, size in ((4, 12), (4, 3), (3, 6), (3, 2))
    ]
    expected = np.concatenate(drawn).astype(np.float32)
    assert np.array_equal(net.init(np.random.default_rng(7)), expected)


def test_gain_scales_initial_parameters():
    plain, wide = Net((Dense("fc", 4, 3),), (4,)), Net((Dense("fc", 4, 3),), (4,), gain=2.0)
    one, two = (net.init(np.random.default_rng(0)) for net in (plain, wide))
    np.testing.assert_allclose(two, 2 * one, rtol=1e-6)


def test_initial_parameters_follow_the_pytorch_distribution():
    net = LeNet5().build((1, 28, 28), 10)
    params = net.init(np.random.default_rng(0))
    assert params.dtype == np.float32
    assert np.array_equal(params, net.init(np.random.default_rng(0)))
    named = net.named_parameters(params)
    for layer, fan_in in {"conv1": 25, "conv2": 150, "fc1": 400, "fc2": 120, "fc3": 84}.items():
        weight = named[f"{layer}.weight"]
        bound = fan_in**-0.5
        assert abs(weight).max() <= bound
        assert abs(named[f"{layer}.bias"]).max() <= bound
        # Uniform on (-b, b) has variance b^2 / 3; the smallest layer has 150 weights.
        assert weight.var() == pytest.approx(bound**2 / 3, rel=0.25)


def test_named_parameters_are_writable_views():
    net = Linear().build((2,), 2)
    params = net.init(np.random.default_rng(0))
    net.named_parameters(params)["fc1.bias"][:] = 7
    assert params[-2:].tolist() == [7, 7]


def test_parameter_vector_of_another_size_is_rejected():
    net = Linear().build((2,), 2)
    with pytest.raises(ShapeMismatch, match=r"6 parameters.*\(7,\)"):
        net.named_parameters(np.zeros(7, dtype=np.float32))


def test_incompatible_layers_are_rejected():
    with pytest.raises(ConfigError, match=r"fc expects vectors of 5 numbers, got shape \(4,\)"):
        Net((Dense("fc", 5, 2),), (4,))


class UnstackableLayer:
    """A layer without a stacked form."""

    shapes: dict = {}  # noqa: RUF012
    fan_in = 1

    def out_shape(self, shape):
        return shape

    def multiply_adds(self, shape):
        return 0

    def apply(self, weights, x):
        return 2 * x


def test_layers_without_a_stacked_form_are_supported():
    net = Net((Flatten(), UnstackableLayer(), Relu(), Dense("fc", 4, 2)), (1, 2, 2))
    assert not net.can_stack
    params = torch.tensor([1.0, 0, 0, 0, 0, 1, 0, 0, 0, 0])
    x = torch.tensor([[[[3.0, 4.0], [5.0, 6.0]]]])
    assert net.apply(params, x).tolist() == [[6, 8]]
    with pytest.raises(TypeError, match="UnstackableLayer"):
        net.apply_stacked(params[None], x[None])


def test_the_output_bias_is_added_to_the_outputs(case):
    net, _, params, x = case
    added = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    changed = params[0].clone()
    changed[net.output_bias] += added
    torch.testing.assert_close(net.apply(changed, x[0]), net.apply(params[0], x[0]) + added)


@pytest.mark.parametrize(
    ("spec", "shape"), [(FastText(width=4), (5, 20)), (CharRnn(units=6, embedding=3), (4, 20))]
)
def test_nets_of_codes_have_an_output_bias(spec, shape):
    net = spec.build(shape, 3)
    params = torch.tensor(net.init(np.random.default_rng(0)))
    codes = torch.arange(4)[:, None].repeat(1, shape[0])
    changed = params.clone()
    changed[net.output_bias] += torch.tensor([0.5, -1.0, 2.0])
    expected = net.apply(params, codes) + torch.tensor([0.5, -1.0, 2.0])
    torch.testing.assert_close(net.apply(changed, codes), expected)


@pytest.mark.parametrize("last", [Relu(), Flatten()])
def test_a_net_whose_last_layer_has_no_bias_has_no_output_bias(last):
    net = Net((Flatten(), Dense("fc", 4, 3), last), (4,))
    assert net.param_shapes[-1] == net.shapes[-1] == (3,)
    assert net.output_bias is None
