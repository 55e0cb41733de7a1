"""The nets by name: sizes one can count, and what they refuse."""

import subprocess
import sys

import numpy as np
import pytest

from thalweg.core.errors import ConfigError
from thalweg.nets import NETS, Cnn, LeNet5, Linear, Mlp

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
def test_the_number_of_parameters_can_be_counted(spec, shape, num_params):
    net = spec.build(shape, 10)
    assert net.num_params == num_params
    assert net.num_classes == 10
    assert net.can_stack


@pytest.mark.parametrize("name", NETS)
def test_every_net_of_the_table_has_defaults_and_builds(name):
    net = NETS[name]().build((1, 12, 17), 3)
    assert net.init(np.random.default_rng(0)).shape == (net.num_params,)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LeNet5().build((20,), 10), ["images", "(20,)", "'mlp'"]),
        (lambda: Cnn().build((3, 7, 32), 10), ["8x8", "7x32"]),
        (lambda: LeNet5().build((1, 3, 3), 10), ["4x4", "3x3"]),
        (lambda: Linear().build((20,), 1), ["2 classes", "got 1"]),
        (lambda: Linear().build((), 2), ["()"]),
        (lambda: Mlp(hidden=()), ["hidden=()", "'linear'"]),
        (lambda: Mlp(hidden=(4, 0)), ["hidden=(4, 0)"]),
        (lambda: Cnn(channels=(1, 2)), ["channels=(1, 2)"]),
        (lambda: Cnn(hidden=0), ["hidden", "0"]),
    ],
)
def test_the_impossible_is_refused_with_what_was_expected(make, words):
    with pytest.raises(ConfigError) as refusal:
        make()
    assert all(word in str(refusal.value) for word in words)


def test_the_tables_can_be_read_without_torch():
    code = "import sys, thalweg.nets, thalweg.local; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
