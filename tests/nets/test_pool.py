"""Pooling alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nets.stacked_layers import assert_stacked_agrees
from thalweg.core.errors import ConfigError
from thalweg.nets.pool import AvgPool, GlobalAvgPool, MaxPool

X = torch.tensor([[1.0, 2.0, 9.0], [3.0, 6.0, 9.0], [9.0, 9.0, 9.0]]).view(1, 1, 3, 3)


def test_pooling_by_hand():
    assert MaxPool().apply([], X).flatten().tolist() == [6]  # the rest does not fill a window
    assert AvgPool().apply([], X).flatten().tolist() == [3]
    assert MaxPool(2, 1).apply([], X).flatten().tolist() == [6, 9, 9, 9]
    assert GlobalAvgPool().apply([], X).tolist() == [[pytest.approx(57 / 9)]]
    assert GlobalAvgPool().out_shape((5, 3, 3)) == (5,)


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from([MaxPool, AvgPool]),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    height=st.integers(3, 7),
    width=st.integers(3, 7),
    clients=st.integers(1, 3),
)
def test_stacked_equals_single(kind, kernel, stride, height, width, clients):
    assert_stacked_agrees(kind(kernel, stride), (2, height, width), batch=3, clients=clients)


def test_the_mean_over_the_image_is_the_same_stacked():
    assert_stacked_agrees(GlobalAvgPool(), (4, 3, 5), batch=3, clients=2)


def test_a_tie_is_won_by_the_first_in_reading_order_in_both_ways():
    x = torch.tensor([[1.0, 3.0], [3.0, 3.0]]).view(1, 1, 2, 2).requires_grad_()
    (single,) = torch.autograd.grad(MaxPool().apply([], x).sum(), x)
    (stacked,) = torch.autograd.grad(MaxPool().apply_stacked([], x[..., None]).sum(), x)
    assert single.view(2, 2).tolist() == stacked.view(2, 2).tolist() == [[0, 1], [0, 0]]


@pytest.mark.parametrize("shape", [(2, 1, 8), (8, 8), (8,)])
def test_what_cannot_be_pooled_is_refused(shape):
    with pytest.raises(ConfigError, match="pooling expects images"):
        MaxPool().out_shape(shape)
