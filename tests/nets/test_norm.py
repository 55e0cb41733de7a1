"""Group normalisation: by hand, stacked, and deaf to the neighbours."""

import numpy as np
import pytest
import torch

from nets.stacked_layers import assert_stacked_agrees
from thalweg.core.errors import ConfigError
from thalweg.nets.net import CustomInitLayer, Net
from thalweg.nets.norm import GroupNorm


def test_two_groups_by_hand():
    layer = GroupNorm("norm", channels=4, groups=2, epsilon=0.0)
    x = torch.tensor([[1.0, 3.0, 10.0, 30.0]])  # groups (1, 3) and (10, 30): both become (-1, 1)
    weight, bias = torch.tensor([1.0, 1.0, 5.0, 5.0]), torch.tensor([0.0, 0.0, 0.0, 1.0])
    assert layer.apply([weight, bias], x).tolist() == [[-1, 1, -5, 6]]
    stacked = layer.apply_stacked([weight[None], bias[None]], x.T[None])
    torch.testing.assert_close(stacked[0, :, 0], torch.tensor([-1.0, 1, -5, 6]))


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("shape", [(6, 3, 4), (6, 1, 2)])
def test_stacked_equals_single(groups, shape):
    assert_stacked_agrees(GroupNorm("norm", 6, groups), shape, batch=3, clients=2)


def test_a_sample_is_normalised_the_same_whoever_else_is_in_the_batch():
    layer = GroupNorm("norm", 4, 2)
    x = torch.randn(5, 4, 3, 3, generator=torch.Generator().manual_seed(0))
    x[3:] *= 1000  # what padding may look like
    weights = [torch.ones(4), torch.zeros(4)]
    torch.testing.assert_close(layer.apply(weights, x)[:3], layer.apply(weights, x[:3]))


def test_scales_start_at_one_and_shifts_at_zero_without_a_draw():
    rng = np.random.default_rng(0)
    params = Net((GroupNorm("norm", 3, 1),), (3,)).init(rng)
    assert params.tolist() == [1, 1, 1, 0, 0, 0]
    assert rng.random() == np.random.default_rng(0).random()
    assert isinstance(GroupNorm("norm", 3, 1), CustomInitLayer)


def test_work_is_counted_per_sample():
    assert GroupNorm("norm", 4, 2).multiply_adds((4, 3, 3)) == 72


def test_what_cannot_be_grouped_is_refused():
    with pytest.raises(ConfigError, match="6 channels cannot be split into 4 groups"):
        GroupNorm("norm", 6, 4)
    with pytest.raises(ConfigError, match=r"expects 6 channels, got shape \(5, 2, 2\)"):
        GroupNorm("norm", 6, 3).out_shape((5, 2, 2))
