"""Tests of the registered nets: sizes and rejected options."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from thalweg.core.errors import ConfigError
from thalweg.nets import (
    NETS,
    AlexNet,
    CharRnn,
    Cnn,
    Cnn5x5,
    FastText,
    HamCnn,
    LeNet5,
    Linear,
    Mlp,
    ResNet10,
    ResNet18,
    ResNet34,
)

# Weights and biases, layer by layer.
LENET = (6 * 25 + 6) + (16 * 6 * 25 + 16)
LENET_HEAD = (120 * 84 + 84) + (84 * 10 + 10)


@pytest.mark.parametrize(
    ("spec", "shape", "num_params"),
    [
        (Linear(), (20,), 20 * 10 + 10),
        (Linear(), (1, 28, 28), 784 * 10 + 10),
        (Mlp(), (1, 28, 28), 784 * 200 + 200 + 200 * 10 + 10),
        (Mlp(hidden=(5, 3)), (4,), 4 * 5 + 5 + 5 * 3 + 3 + 3 * 10 + 10),
        (LeNet5(), (1, 28, 28), LENET + (400 * 120 + 120) + LENET_HEAD),
        (LeNet5(), (1, 32, 32), LENET + (400 * 120 + 120) + LENET_HEAD),
        (LeNet5(), (3, 32, 32), LENET + 6 * 50 + (400 * 120 + 120) + LENET_HEAD),
        (LeNet5(), (1, 8, 8), LENET + (16 * 2 * 2 * 120 + 120) + LENET_HEAD),
        (
            Cnn(),
            (3, 32, 32),
            (27 * 16 + 16) + (144 * 32 + 32) + (288 * 64 + 64) + (1024 * 128 + 128) + 1290,
        ),
        (Cnn(), (1, 8, 8), (9 * 16 + 16) + (144 * 32 + 32) + (288 * 64 + 64) + 65 * 128 + 1290),
    ],
)
def test_small_nets_have_the_expected_number_of_parameters(spec, shape, num_params):
    net = spec.build(shape, 10)
    assert net.num_params == num_params
    assert net.num_classes == 10
    assert net.can_stack


# conv, then the head.
ALEXNET = 64 * 28 + 192 * 577 + 384 * 1729 + 256 * 3457 + 256 * 2305


@pytest.mark.parametrize(
    ("spec", "shape", "num_classes", "num_params"),
    [
        (AlexNet(), (3, 32, 32), 10, ALEXNET + 2 * 4096 * 4097 + 10 * 4097),
        (HamCnn(), (3, 28, 28), 7, 32 * 28 + 64 * 289 + 128 * 577 + 128 * 1153 + 7 * 129),
        (ResNet10(), (3, 32, 32), 10, 4_903_242),
        (ResNet18(), (3, 32, 32), 10, 11_173_962),
        (ResNet34(), (3, 32, 32), 10, 21_282_122),
        (FastText(), (64, 30_002), 4, 30_002 * 300 + 4 * 301),
        (CharRnn("lstm"), (80, 97), 97, 97 * 8 + 1024 * 266 + 1024 * 514 + 97 * 257),
        (CharRnn(), (80, 100), 100, 226_180),
        (Cnn5x5(), (3, 32, 32), 10, 3_353_034),
        (Cnn5x5(), (3, 32, 32), 100, 3_537_444),
        (Cnn5x5(), (1, 28, 28), 62, 32 * 26 + 64 * 801 + 2048 * 1025 + 62 * 2049),
        (Cnn5x5(), (1, 8, 8), 10, 32 * 26 + 64 * 801 + 2048 * (64 * 4 + 1) + 10 * 2049),
    ],
)
def test_large_nets_have_the_published_number_of_parameters(spec, shape, num_classes, num_params):
    assert spec.build(shape, num_classes).num_params == num_params


def test_alexnet_has_the_size_stated_in_the_paper():
    assert round(AlexNet().build((3, 32, 32), 10).num_params * 4 / 2**20 - 0.5) == 136  # MiB


@pytest.mark.parametrize(
    "spec", [AlexNet((8, 8, 8, 8, 8), 16), HamCnn((8, 8, 8), 16), ResNet18(8, 4)]
)
def test_every_parameter_gets_a_gradient(spec):
    net = spec.build((3, 16, 16), 4)
    params = torch.tensor(net.init(np.random.default_rng(2)), requires_grad=True)
    x = torch.randn(16, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    (gradient,) = torch.autograd.grad(net.apply(params, x).square().sum(), params)
    assert torch.isfinite(gradient).all()
    pieces = net.named_parameters(gradient.numpy())
    assert [name for name, piece in pieces.items() if not piece.any()] == []


@pytest.mark.parametrize("name", [name for name in NETS if name != "module"])
def test_every_registered_net_builds_with_default_options(name):
    reads_text = name in ("char-rnn", "fast-text")
    net = NETS[name]().build((12, 17) if reads_text else (1, 12, 17), 3)
    assert net.init(np.random.default_rng(0)).shape == (net.num_params,)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LeNet5().build((20,), 10), ["images", "(20,)", "'mlp'"]),
        (lambda: Cnn().build((3, 7, 32), 10), ["8x8", "7x32"]),
        (lambda: LeNet5().build((1, 3, 3), 10), ["4x4", "3x3"]),
        (lambda: Linear().build((20,), 0), ["at least one output", "got 0"]),
        (lambda: Linear().build((), 2), ["()"]),
        (
            lambda: Mlp().build((80, 97), 97),
            ["(80, 97)", "sequences", "'fast-text' or 'char-rnn'"],
        ),
        (lambda: Cnn().build((80, 97), 97), ["images", "(80, 97)", "'char-rnn'"]),
        (lambda: CharRnn().build((20,), 2), ["sequences of codes", "(20,)", "'mlp'"]),
        (lambda: CharRnn().build((3, 32, 32), 2), ["(3, 32, 32)", "'cnn'"]),
        (lambda: CharRnn(layers=0), ["layers >= 1", "0"]),
        (lambda: FastText().build((20,), 2), ["sequences of codes", "(20,)", "'mlp'"]),
        (lambda: FastText().build((3, 32, 32), 2), ["(3, 32, 32)", "'cnn'"]),
        (lambda: FastText(width=0), ["width >= 1", "0"]),
        (lambda: Mlp(hidden=()), ["hidden=()", "'linear'"]),
        (lambda: Mlp(hidden=(4, 0)), ["hidden=(4, 0)"]),
        (lambda: Cnn(channels=(1, 2)), ["channels=(1, 2)"]),
        (lambda: Cnn5x5(channels=(1, 2, 3)), ["Cnn5x5", "2 numbers", "channels=(1, 2, 3)"]),
        (lambda: Cnn5x5().build((3, 3, 32), 10), ["cnn-5x5", "4x4", "3x32"]),
        (lambda: CharRnn("gru"), ["cell", "gru"]),
        (lambda: Cnn(hidden=0), ["hidden", "0"]),
        (lambda: HamCnn(dropout=1.0), ["HamCnn", "[0, 1)", "1.0"]),
        (lambda: HamCnn(channels=(1, 2)), ["HamCnn", "channels=(1, 2)"]),
        (lambda: AlexNet(channels=(1, 2)), ["five", "(1, 2)"]),
        (lambda: AlexNet(hidden=0), ["hidden", "0"]),
        (lambda: AlexNet(dropout=-1.0), ["AlexNet", "-1.0"]),
        (lambda: AlexNet(gain=0.0), ["gain above 0"]),
        (lambda: AlexNet().build((3, 7, 32), 10), ["8x8", "7x32"]),
        (lambda: ResNet18(width=48), ["width=48", "groups=32"]),
        (lambda: ResNet10().build((20,), 10), ["resnet10", "(20,)"]),
    ],
)
def test_invalid_net_options_are_rejected_with_the_expected_values(make, words):
    with pytest.raises(ConfigError) as caught:
        make()
    assert all(word in str(caught.value) for word in words)


def test_nets_package_imports_without_torch():
    code = "import sys, thalweg.nets, thalweg.local; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
