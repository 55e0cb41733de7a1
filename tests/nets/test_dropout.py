"""Tests that dropout noise of a client does not depend on other clients in the stack."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError, ShapeMismatch
from thalweg.nets import HamCnn, LeNet5, Net
from thalweg.nets.dropout import Dropout, fork_generators
from thalweg.nets.layers import Dense, Flatten, Relu


def make_generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def make_net_with_two_dropouts():
    layers = (Flatten(), Dropout(0.3), Dense("fc1", 12, 20), Relu(), Dropout(0.5))
    return Net((*layers, Dense("fc2", 20, 3)), (3, 2, 2))


def params_and_inputs(net, clients, batch):
    torch.manual_seed(0)
    params = torch.randn(clients, net.num_params, dtype=torch.float64)
    return params, torch.randn(clients, batch, *net.input_shape, dtype=torch.float64)


@settings(max_examples=20, deadline=None)
@given(rate=st.floats(0, 0.95), seed=st.integers(0, 99))
def test_dropout_scales_kept_values_to_preserve_the_mean(rate, seed):
    mask = Dropout(rate).mask((40, 500), *make_generators(seed))
    kept = mask > 0
    assert torch.all(mask[kept] == torch.tensor(1.0) / (1 - rate))
    deviation = (rate / (1 - rate) / 20_000) ** 0.5  # of the mean of a scaled coin
    assert abs(float(mask.mean()) - 1) <= 6 * deviation + 1e-6


@pytest.mark.parametrize("shape", [(7,), (3, 2, 4)])
def test_stacked_dropout_mask_equals_the_single_mask(shape):
    layer = Dropout(0.5)
    x = torch.rand(3, 5, *shape) + 1  # (K, B, ...)
    stacked = layer.apply_stacked_noisy([], x.movedim(1, -1), make_generators(4, 5, 6)).movedim(
        -1, 1
    )
    for k, noise in enumerate(make_generators(4, 5, 6)):
        assert torch.equal(stacked[k], layer.apply_noisy([], x[k], noise))
    assert not torch.equal(stacked[0] == 0, stacked[1] == 0)


def test_net_with_dropout_gives_equal_outputs_single_and_stacked():
    net = make_net_with_two_dropouts()
    params, x = params_and_inputs(net, clients=3, batch=5)
    stacked = net.apply_stacked(params, x, make_generators(1, 2, 3))
    alone = [
        net.apply(p, mine, g)
        for p, mine, g in zip(params, x, make_generators(1, 2, 3), strict=True)
    ]
    torch.testing.assert_close(stacked, torch.stack(alone))
    assert not torch.allclose(stacked, net.apply_stacked(params, x))


def test_net_with_dropout_gives_equal_gradients_single_and_stacked():
    net = make_net_with_two_dropouts()
    params, x = params_and_inputs(net, clients=2, batch=4)
    params.requires_grad_()
    loss = net.apply_stacked(params, x, make_generators(1, 2)).square().sum()
    (stacked,) = torch.autograd.grad(loss, params)
    for k, noise in enumerate(make_generators(1, 2)):
        (alone,) = torch.autograd.grad(net.apply(params[k], x[k], noise).square().sum(), params)
        torch.testing.assert_close(stacked[k], alone[k])


def test_padding_samples_do_not_change_dropout_of_other_samples():
    net = make_net_with_two_dropouts()
    (params,), (x,) = params_and_inputs(net, clients=1, batch=6)
    short, long = (torch.Generator().manual_seed(8) for _ in range(2))
    for _ in range(2):  # in the step after, too
        torch.testing.assert_close(net.apply(params, x[:4], short), net.apply(params, x, long)[:4])


def test_each_step_draws_new_dropout_noise():
    net, (noise,) = make_net_with_two_dropouts(), make_generators(0)
    (params,), (x,) = params_and_inputs(net, clients=1, batch=6)
    assert not torch.equal(net.apply(params, x, noise), net.apply(params, x, noise))


def test_two_dropout_layers_of_a_net_draw_different_masks():
    one, two = fork_generators(*make_generators(0), 2)
    layer = Dropout(0.5)
    assert not torch.equal(layer.mask((50,), one), layer.mask((50,), two))


def test_net_without_generator_applies_no_dropout():
    net = make_net_with_two_dropouts()
    params, x = params_and_inputs(net, clients=2, batch=5)
    bare = Net(tuple(la for la in net.layers if not isinstance(la, Dropout)), net.input_shape)
    for k in range(2):
        assert torch.equal(net.apply(params[k], x[k]), bare.apply(params[k], x[k]))
    assert torch.equal(net.apply_stacked(params, x), bare.apply_stacked(params, x))


def test_only_nets_with_dropout_are_noisy():
    assert HamCnn().build((3, 28, 28), 7).is_noisy
    assert not HamCnn(dropout=0.0).build((3, 28, 28), 7).is_noisy
    assert not LeNet5().build((1, 28, 28), 10).is_noisy


def test_noiseless_net_does_not_use_the_generator():
    net, (noise,) = LeNet5().build((1, 8, 8), 3), make_generators(0)
    before = noise.get_state()
    params, x = torch.randn(net.num_params), torch.randn(2, 1, 8, 8)
    assert torch.equal(net.apply(params, x, noise), net.apply(params, x))
    assert torch.equal(noise.get_state(), before)


def test_missing_generators_of_a_stack_are_rejected():
    net = make_net_with_two_dropouts()
    params, x = params_and_inputs(net, clients=3, batch=2)
    with pytest.raises(ShapeMismatch, match="each of 3 models, got 2"):
        net.apply_stacked(params, x, make_generators(1, 2))


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
def test_invalid_dropout_rates_are_rejected(rate):
    with pytest.raises(ConfigError, match=r"\[0, 1\)"):
        Dropout(rate)
