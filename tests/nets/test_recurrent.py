"""Tests of recurrent layers: hand-computed values and PyTorch modules."""

import math

import numpy as np
import pytest
import torch
from torch.nn.utils import parameters_to_vector

from thalweg.core.errors import ConfigError
from thalweg.nets import CharRnn
from thalweg.nets.net import CustomInitLayer, Net, StackableLayer
from thalweg.nets.recurrent import Embedding, Lstm, Rnn


class TorchCharRnn(torch.nn.Module):
    """The same net as a plain PyTorch module."""

    def __init__(self, cell, num_codes, embedding, units, layers, num_classes):
        super().__init__()
        self.embedding = torch.nn.Embedding(num_codes, embedding)
        kind = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM}[cell]
        self.recurrent = kind(embedding, units, layers, batch_first=True)
        self.fc = torch.nn.Linear(units, num_classes)

    def forward(self, codes):
        states, _ = self.recurrent(self.embedding(codes))
        return self.fc(states[:, -1])


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("cell", ["rnn", "lstm"])
def test_char_rnn_parameters_outputs_and_gradients_match_pytorch(cell, layers):
    torch.manual_seed(0)
    theirs = TorchCharRnn(cell, num_codes=7, embedding=3, units=5, layers=layers, num_classes=4)
    net = CharRnn(cell, embedding=3, units=5, layers=layers).build((6, 7), num_classes=4)
    params = parameters_to_vector(theirs.parameters()).detach().requires_grad_()
    assert len(params) == net.num_params
    codes = torch.randint(7, (9, 6))
    upstream = torch.randn(9, 4)
    torch.testing.assert_close(net.apply(params, codes), theirs(codes))
    (ours,) = torch.autograd.grad((net.apply(params, codes) * upstream).sum(), params)
    (theirs(codes) * upstream).sum().backward()
    expected = parameters_to_vector([p.grad for p in theirs.parameters()])
    torch.testing.assert_close(ours, expected)
    with torch.inference_mode():
        torch.testing.assert_close(net.apply(params, codes), theirs(codes))


def test_two_rnn_steps_match_hand_computed_values():
    layer = Rnn("rnn", inputs=1, units=1, every_state=True)
    weights = [
        torch.tensor([[0.5]]),
        torch.tensor([[-2.0]]),
        torch.tensor([0.1]),
        torch.tensor([0.2]),
    ]
    first = math.tanh(0.5 * 1.0 + 0.1 + 0.2)
    second = math.tanh(0.5 * -3.0 - 2.0 * first + 0.1 + 0.2)
    x = torch.tensor([[[1.0], [-3.0]]])
    assert layer.apply(weights, x)[0, :, 0].tolist() == pytest.approx([first, second], rel=1e-5)
    last = Rnn("rnn", inputs=1, units=1).apply(weights, x)
    assert last[0].tolist() == pytest.approx([second], rel=1e-5)


def test_two_lstm_steps_match_hand_computed_values():
    layer = Lstm("lstm", inputs=1, units=1, every_state=True)
    input_gate, forget, content, output = 0.5, -1.0, 2.0, 0.3  # how each reads the input
    weights = [
        torch.tensor([[input_gate], [forget], [content], [output]]),
        torch.tensor([[0.1], [0.2], [0.3], [0.4]]),
        torch.tensor([0.0, 1.0, 0.0, 0.0]),
        torch.tensor([0.0, 0.0, 0.0, -1.0]),
    ]

    def sigmoid(value):
        return 1 / (1 + math.exp(-value))

    hidden = cell = 0.0
    expected = []
    for x in (1.0, -2.0):
        i, f = sigmoid(0.5 * x + 0.1 * hidden), sigmoid(-1.0 * x + 0.2 * hidden + 1.0)
        g, o = math.tanh(2.0 * x + 0.3 * hidden), sigmoid(0.3 * x + 0.4 * hidden - 1.0)
        cell = f * cell + i * g
        hidden = o * math.tanh(cell)
        expected.append(hidden)
    x = torch.tensor([[[1.0], [-2.0]]])
    assert layer.apply(weights, x)[0, :, 0].tolist() == pytest.approx(expected, rel=1e-5)
    last = Lstm("lstm", inputs=1, units=1).apply(weights, x)
    assert last[0].tolist() == pytest.approx(expected[1:], rel=1e-5)


def test_embedding_returns_rows_of_its_table():
    weight = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    got = Embedding("e", num_codes=3, width=2).apply([weight], torch.tensor([[2, 0, 2]]))
    assert got.tolist() == [[[5, 6], [1, 2], [5, 6]]]


@pytest.mark.parametrize("cell", ["rnn", "lstm"])
def test_output_of_a_sample_does_not_depend_on_the_batch(cell):
    net = CharRnn(cell, embedding=2, units=3).build((5, 4), 2)
    params = torch.tensor(net.init(np.random.default_rng(0)))
    codes = torch.randint(4, (6, 5), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(net.apply(params, codes)[:2], net.apply(params, codes[:2]))
    assert net.apply(params, codes[:0]).shape == (0, 2)


def test_initial_lstm_parameters_follow_the_pytorch_distributions():
    net = CharRnn("lstm", embedding=50, units=64, layers=1).build((5, 90), 2)
    pieces = net.named_parameters(net.init(np.random.default_rng(0)))
    assert list(pieces) == [
        "embedding.weight",
        *(f"lstm1.{name}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")),
        "fc1.weight",
        "fc1.bias",
    ]
    assert pieces["embedding.weight"].std() == pytest.approx(1, abs=0.05)  # 4,500 numbers
    for name in ("lstm1.weight_ih", "lstm1.weight_hh"):
        assert np.abs(pieces[name]).max() == pytest.approx(1 / 8, rel=0.01)


def test_recurrent_nets_cannot_be_stacked():
    net = CharRnn(embedding=2, units=3).build((5, 4), 2)
    assert not net.can_stack
    assert isinstance(net.layers[0], CustomInitLayer)
    assert not isinstance(net.layers[1], StackableLayer)


def test_recurrent_multiply_adds_and_shapes_are_counted():
    assert Rnn("rnn", inputs=8, units=256).multiply_adds((80, 8)) == 80 * 256 * 264
    layer = Lstm("lstm", inputs=8, units=256)
    assert layer.multiply_adds((80, 8)) == 80 * (1024 * 264 + 768)
    assert Embedding("e", 97, 8).multiply_adds((80, 97)) == 0
    net = CharRnn(embedding=2, units=3).build((5, 4), 6)
    assert net.shapes == ((5, 4), (5, 2), (5, 3), (3,), (6,))


def test_recurrent_layers_reject_inputs_with_other_shapes():
    with pytest.raises(
        ConfigError, match=r"97 kinds of codes, shape \(length, 97\), got .*\(80,\)"
    ):
        Net((Embedding("e", 97, 8),), (80,))
    with pytest.raises(ConfigError, match=r"vectors of 8 numbers.*got shape \(80, 7\)"):
        Lstm("lstm", 8, 4).out_shape((80, 7))
    with pytest.raises(ConfigError, match="got shape"):
        Lstm("lstm", 8, 4).out_shape((0, 8))
