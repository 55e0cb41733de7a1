"""Tests of the residual block: the sum of body and shortcut, followed by ReLU."""

import numpy as np
import pytest
import torch

from nets.stacked_layers import assert_stacked_agrees
from thalweg.core.errors import ConfigError
from thalweg.nets.conv import Conv
from thalweg.nets.dropout import Dropout
from thalweg.nets.layers import Dense, Relu
from thalweg.nets.net import Net
from thalweg.nets.norm import GroupNorm
from thalweg.nets.residual import Residual

DOWN = Residual(
    (Conv("a", 2, 4, 3, stride=2, padding=1, bias=False), GroupNorm("n", 4, 2), Relu()),
    (Conv("b", 2, 4, 1, stride=2),),
)


def test_residual_block_matches_hand_computed_values():
    block = Residual((Dense("fc", 2, 2),))
    weights = [torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([0.0, -9.0])]
    assert block.apply(weights, torch.tensor([[1.0, 2.0]])).tolist() == [[3, 0]]  # 1 + 2, 2 + 1 - 9


@pytest.mark.parametrize("shape", [(2, 4, 4), (2, 5, 3)])
def test_stacked_residual_block_equals_single_blocks(shape):
    assert_stacked_agrees(DOWN, shape, batch=3, clients=2)
    same = Residual((Conv("a", 2, 2, 3, padding=1), GroupNorm("n", 2, 1)))
    assert_stacked_agrees(same, shape, batch=3, clients=2)


def test_parameters_of_the_body_come_before_those_of_the_shortcut():
    assert list(DOWN.shapes) == ["a.weight", "n.weight", "n.bias", "b.weight", "b.bias"]


def test_layers_in_a_residual_block_keep_their_initialisation():
    net = Net((DOWN,), (2, 4, 4))
    named = net.named_parameters(net.init(np.random.default_rng(0)))
    assert named["n.weight"].tolist() == [1] * 4
    assert named["n.bias"].tolist() == [0] * 4
    assert 0 < abs(named["a.weight"]).max() <= 18**-0.5
    assert 18**-0.5 < abs(named["b.weight"]).max() <= 2**-0.5


def test_residual_multiply_adds_include_body_and_shortcut():
    # 2 x 2 outputs: 4 channels of 18 numbers, the norm, and 4 channels of 2 numbers.
    assert DOWN.multiply_adds((2, 4, 4)) == 4 * 4 * 18 + 2 * 16 + 4 * 4 * 2


def test_body_and_shortcut_with_different_shapes_are_rejected():
    with pytest.raises(ConfigError, match=r"they have \(4, 2, 2\) and \(2, 4, 4\)"):
        Residual(DOWN.body).out_shape((2, 4, 4))


def test_dropout_in_a_residual_block_is_rejected():
    with pytest.raises(ConfigError, match="got Dropout"):
        Residual((Dropout(0.5),))
