"""Tests of the combined convolution, pooling and ReLU block."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.nets.conv_pool import ConvPool


def compute_single_and_stacked(block, shape, batch, clients, seed=0):
    """Return outputs and gradients of single models and of the stack, as two lists."""
    generator = torch.Generator().manual_seed(seed)

    def random(*size):
        return torch.randn(*size, generator=generator, dtype=torch.float64).requires_grad_()

    weight, bias = (random(clients, *size) for size in block.shapes.values())
    x = random(clients, batch, *shape)
    upstream = random(clients, batch, *block.out_shape(shape)).detach()
    single = torch.stack([block.apply([weight[k], bias[k]], x[k]) for k in range(clients)])
    stacked = block.apply_stacked([weight, bias], x.movedim(1, -1)).movedim(-1, 1)
    return [
        [y, *torch.autograd.grad((y * upstream).sum(), [weight, bias, x])]
        for y in (single, stacked)
    ]


@settings(max_examples=40, deadline=None)
@given(
    inputs=st.integers(1, 3),
    outputs=st.integers(1, 4),
    kernel=st.integers(1, 6),
    padding=st.integers(0, 3),
    height=st.integers(2, 11),
    width=st.integers(2, 11),
    batch=st.integers(1, 4),
    clients=st.integers(1, 3),
)
def test_stacked_conv_pool_equals_single_blocks(
    inputs, outputs, kernel, padding, height, width, batch, clients
):
    block = ConvPool("conv", inputs, outputs, kernel, padding)
    if min(height, width) + 2 * padding - kernel + 1 < 2:
        with pytest.raises(ConfigError, match="too small"):
            block.out_shape((inputs, height, width))
        return
    single, stacked = compute_single_and_stacked(block, (inputs, height, width), batch, clients)
    for ours, theirs in zip(stacked, single, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_pooling_ties_are_resolved_as_in_pytorch():
    block = ConvPool("conv", 1, 1, kernel=1)
    x = torch.tensor([[1.0, 3.0], [3.0, 3.0]]).view(1, 1, 1, 2, 2).requires_grad_()
    one, zero = torch.ones(1, 1, 1, 1, 1), torch.zeros(1, 1)
    block.apply_stacked([one, zero], x.movedim(1, -1)).sum().backward()
    assert x.grad.view(2, 2).tolist() == [[0, 1], [0, 0]]
    x.grad = None
    block.apply([one[0], zero[0]], x[0]).sum().backward()
    assert x.grad.view(2, 2).tolist() == [[0, 1], [0, 0]]


def test_inference_mode_saves_nothing_for_the_backward_pass():
    block = ConvPool("conv", 1, 2, kernel=3, padding=1)
    weight, bias = torch.randn(1, 2, 1, 3, 3), torch.randn(1, 2)
    x = torch.randn(1, 1, 4, 4, 5)
    with torch.inference_mode():
        quick = block.apply_stacked([weight, bias], x)
    assert torch.equal(quick, block.apply_stacked([weight.requires_grad_(), bias], x))


def test_conv_pool_multiply_adds_are_counted_per_sample():
    # 4 x 14 x 14 convolutions of 25 pixels, 6 times.
    assert ConvPool("conv", 1, 6, 5, 2).multiply_adds((1, 28, 28)) == 784 * 25 * 6


@pytest.mark.parametrize("shape", [(2, 8, 8), (8, 8), (8,)])
def test_conv_pool_rejects_inputs_with_other_shapes(shape):
    with pytest.raises(ConfigError, match="1 channels"):
        ConvPool("conv", 1, 6, 5).out_shape(shape)
