"""Tests of small layers with hand-computed values."""

import pytest
import torch

from nets.stacked_layers import assert_stacked_agrees
from thalweg.core.errors import ConfigError
from thalweg.nets.layers import Dense, Flatten, GlobalAvgPool, Relu


def test_dense_layer_matches_hand_computed_values():
    layer = Dense("fc", inputs=2, outputs=1)
    weight, bias = torch.tensor([[2.0, 3.0]]), torch.tensor([1.0])
    x = torch.tensor([[1.0, 1.0], [0.0, 2.0]])
    assert layer.apply([weight, bias], x).tolist() == [[6], [7]]
    stacked = layer.apply_stacked([weight[None], bias[None]], x.T[None])  # (K, F, B)
    assert stacked.tolist() == [[[6, 7]]]
    assert layer.multiply_adds((2,)) == 2


def test_flatten_keeps_the_order_of_channels_rows_and_columns():
    image = torch.arange(8.0).view(1, 2, 2, 2)
    assert Flatten().apply([], image).tolist() == [[0, 1, 2, 3, 4, 5, 6, 7]]
    assert Flatten().apply_stacked([], image[..., None])[0, :, 0].tolist() == list(range(8))
    assert Flatten().out_shape((2, 2, 2)) == (8,)


def test_relu_matches_hand_computed_values():
    x = torch.tensor([-1.0, 0.0, 2.0])
    assert Relu().apply([], x).tolist() == Relu().apply_stacked([], x).tolist() == [0, 0, 2]


def test_global_average_pooling_is_the_mean_of_each_channel():
    x = torch.tensor([[1.0, 2.0, 9.0], [3.0, 6.0, 9.0], [9.0, 9.0, 9.0]]).view(1, 1, 3, 3)
    assert GlobalAvgPool().apply([], x).tolist() == [[pytest.approx(57 / 9)]]
    assert GlobalAvgPool().out_shape((5, 3, 3)) == (5,)
    assert_stacked_agrees(GlobalAvgPool(), (4, 3, 5), batch=3, clients=2)
    with pytest.raises(ConfigError, match="pooling expects images"):
        GlobalAvgPool().out_shape((8,))
