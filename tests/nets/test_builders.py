"""Tests of the projection head that all nets share."""

import numpy as np
import pytest
import torch

from thalweg.core.errors import ConfigError
from thalweg.nets import Cnn, FastText, LeNet5, Mlp, ResNet10, ResNet18, ResNet34
from thalweg.nets.builders import build_head

# A net, its input shape, and the input width of its last layer without a head.
CASES = [
    (Mlp, {"hidden": (7, 6)}, (5,), 6),
    (LeNet5, {}, (1, 8, 8), 84),
    (Cnn, {"channels": (2, 3, 4), "hidden": 9}, (3, 8, 8), 9),
    (ResNet10, {"width": 2, "groups": 1}, (3, 8, 8), 16),
    (ResNet18, {"width": 2, "groups": 1}, (3, 8, 8), 16),
    (ResNet34, {"width": 2, "groups": 1}, (3, 8, 8), 16),
    (FastText, {"width": 6}, (4, 11), 6),
]


@pytest.mark.parametrize("spec, fields, shape, width", CASES)
def test_projection_output_is_the_input_of_the_last_layer(spec, fields, shape, width):
    torch.manual_seed(0)
    plain = spec(**fields).build(shape, 3)
    net = spec(**fields, projection=5).build(shape, 3)
    params = torch.tensor(net.init(np.random.default_rng(0)))
    x = torch.randint(11, (2, 4)) if spec is FastText else torch.randn(2, *shape)
    logits, features = net.with_features(params, x)
    assert features.shape == (2, 5)
    pieces = {name: torch.tensor(p) for name, p in net.named_parameters(params.numpy()).items()}
    assert list(pieces)[-6:-2] == [
        *("projection1.weight", "projection1.bias", "projection2.weight", "projection2.bias"),
    ]
    assert pieces["projection1.weight"].shape == (width, width)
    assert pieces["projection2.weight"].shape == (5, width)
    weight, bias = list(pieces.values())[-2:]
    torch.testing.assert_close(features @ weight.T + bias, logits)
    assert (features < 0).any()  # no ReLU between the head and the last layer
    # The layers before the head are the plain net without its last layer.
    last = 3 * (width + 1)
    body = torch.cat([params[: plain.num_params - last], torch.zeros(last)])
    _, before = plain.with_features(body, x)
    inner = torch.relu(before @ pieces["projection1.weight"].T + pieces["projection1.bias"])
    expected = inner @ pieces["projection2.weight"].T + pieces["projection2.bias"]
    torch.testing.assert_close(features, expected)


@pytest.mark.parametrize("spec, fields, shape, width", CASES)
def test_stacked_nets_apply_the_same_projection(spec, fields, shape, width):
    torch.manual_seed(1)
    net = spec(**fields, projection=5).build(shape, 3)
    rng = np.random.default_rng(1)
    params = torch.tensor(np.stack([net.init(rng), net.init(rng)]))
    x = torch.randint(11, (2, 3, 4)) if spec is FastText else torch.randn(2, 3, *shape)
    logits, features = net.with_features_stacked(params, x)
    for k in range(2):
        expected = net.with_features(params[k], x[k])
        torch.testing.assert_close(logits[k], expected[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(features[k], expected[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spec, fields, shape, width", CASES)
def test_net_without_a_projection_has_no_projection_parameters(spec, fields, shape, width):
    layers = spec(**fields).build(shape, 3).layers
    assert not [name for layer in layers for name in layer.shapes if "projection" in name]
    assert layers[-1].out_shape((width,)) == (3,)


@pytest.mark.parametrize("spec, fields, shape, width", CASES)
def test_projection_width_zero_is_rejected(spec, fields, shape, width):
    with pytest.raises(ConfigError, match="needs projection >= 1 or none, got 0"):
        spec(**fields, projection=0)


def test_projection_head_has_the_expected_number_of_parameters():
    plain, projected = Mlp().build((784,), 10), Mlp(projection=256).build((784,), 10)
    more = (200 * 200 + 200) + (200 * 256 + 256) + (256 * 10 + 10) - (200 * 10 + 10)
    assert projected.num_params - plain.num_params == more


def test_dropout_follows_only_hidden_layers():
    names = [type(layer).__name__ for layer in build_head(4, (3,), 2, dropout=0.5, projection=2)]
    assert names == ["Dense", "Relu", "Dropout", "Dense", "Relu", "Dense", "Dense"]
