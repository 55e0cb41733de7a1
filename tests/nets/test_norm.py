"""Tests of group normalisation: hand-computed values, stacking, independence of the batch."""

import numpy as np
import pytest
import torch

from nets.stacked_layers import assert_stacked_agrees
from thalweg.core.errors import ConfigError
from thalweg.nets.net import CustomInitLayer, Net
from thalweg.nets.norm import GroupNorm


def test_group_norm_matches_hand_computed_values():
    layer = GroupNorm("norm", channels=4, groups=2, epsilon=0.0)
    x = torch.tensor([[1.0, 3.0, 10.0, 30.0]])  # groups (1, 3) and (10, 30): both become (-1, 1)
    weight, bias = torch.tensor([1.0, 1.0, 5.0, 5.0]), torch.tensor([0.0, 0.0, 0.0, 1.0])
    assert layer.apply([weight, bias], x).tolist() == [[-1, 1, -5, 6]]
    stacked = layer.apply_stacked([weight[None], bias[None]], x.T[None])
    torch.testing.assert_close(stacked[0, :, 0], torch.tensor([-1.0, 1, -5, 6]))


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("shape", [(6, 3, 4), (6, 1, 2)])
def test_stacked_group_norm_equals_single(groups, shape):
    assert_stacked_agrees(GroupNorm("norm", 6, groups), shape, batch=3, clients=2)


def test_group_norm_of_a_sample_does_not_depend_on_the_batch():
    layer = GroupNorm("norm", 4, 2)
    x = torch.randn(5, 4, 3, 3, generator=torch.Generator().manual_seed(0))
    x[3:] *= 1000  # what padding may look like
    weights = [torch.ones(4), torch.zeros(4)]
    torch.testing.assert_close(layer.apply(weights, x)[:3], layer.apply(weights, x[:3]))


def test_group_norm_starts_with_scale_one_and_shift_zero_without_drawing():
    rng = np.random.default_rng(0)
    params = Net((GroupNorm("norm", 3, 1),), (3,)).init(rng)
    assert params.tolist() == [1, 1, 1, 0, 0, 0]
    assert rng.random() == np.random.default_rng(0).random()
    assert isinstance(GroupNorm("norm", 3, 1), CustomInitLayer)


def test_group_norm_multiply_adds_are_counted_per_sample():
    assert GroupNorm("norm", 4, 2).multiply_adds((4, 3, 3)) == 72


def test_invalid_groups_and_channels_are_rejected():
    with pytest.raises(ConfigError, match="6 channels cannot be split into 4 groups"):
        GroupNorm("norm", 6, 4)
    with pytest.raises(ConfigError, match=r"expects 6 channels, got shape \(5, 2, 2\)"):
        GroupNorm("norm", 6, 3).out_shape((5, 2, 2))
