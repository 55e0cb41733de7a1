"""Tests of convolution: hand-computed values and stacked models."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nets.stacked_layers import assert_stacked_agrees
from thalweg.core.errors import ConfigError
from thalweg.nets.conv import Conv


def test_convolution_matches_hand_computed_values():
    layer = Conv("conv", 1, 1, kernel=2, stride=2)
    weight, bias = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), torch.tensor([10.0])
    x = torch.arange(16.0).view(1, 1, 4, 4)
    # 0 + 2 x 1 + 3 x 4 + 4 x 5 + 10 in the upper left corner; two to the right is 10 x 2 more.
    assert layer.apply([weight, bias], x).flatten().tolist() == [44, 64, 124, 144]
    assert layer.out_shape((1, 4, 4)) == (1, 2, 2)


@settings(max_examples=30, deadline=None)
@given(
    inputs=st.integers(1, 3),
    outputs=st.integers(1, 3),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    bias=st.booleans(),
    height=st.integers(1, 7),
    width=st.integers(1, 7),
    clients=st.integers(1, 3),
)
def test_stacked_convolution_equals_single_convolutions(
    inputs, outputs, kernel, stride, padding, bias, height, width, clients
):
    layer = Conv("conv", inputs, outputs, kernel, stride, padding, bias)
    shape = (inputs, height, width)
    if min(height, width) + 2 * padding < kernel:
        with pytest.raises(ConfigError, match="too small"):
            layer.out_shape(shape)
        return
    assert_stacked_agrees(layer, shape, batch=3, clients=clients)


def test_convolution_bias_is_optional():
    assert list(Conv("c", 3, 8, 3, bias=False).shapes) == ["c.weight"]
    assert list(Conv("c", 3, 8, 3).shapes) == ["c.weight", "c.bias"]


def test_convolution_multiply_adds_are_counted_per_sample():
    # 16 x 16 outputs of 8 channels, each of 3 x 3 pixels of 3 channels.
    assert Conv("c", 3, 8, 3, stride=2, padding=1).multiply_adds((3, 32, 32)) == 256 * 8 * 27


@pytest.mark.parametrize("shape", [(2, 8, 8), (8, 8), (8,)])
def test_convolution_rejects_inputs_with_other_shapes(shape):
    with pytest.raises(ConfigError, match="1 channels"):
        Conv("conv", 1, 6, 5).out_shape(shape)
