"""Tests of the mean word embedding: hand-computed values, PyTorch modules, stacking."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parameters_to_vector

from thalweg.core.errors import ConfigError
from thalweg.data import words
from thalweg.nets import FastText, Net
from thalweg.nets.word_mean import PADDING, WordMean

TABLE = torch.tensor([[9.0, 9.0], [1.0, 2.0], [3.0, 6.0]])


class TorchFastText(nn.Module):
    """The same net as a plain PyTorch module."""

    def __init__(self, num_codes, width, num_classes):
        super().__init__()
        self.embedding = nn.Embedding(num_codes, width, padding_idx=0)
        self.fc = nn.Linear(width, num_classes)

    def forward(self, codes):
        is_word = (codes != 0).unsqueeze(2)
        total = (self.embedding(codes) * is_word).sum(1)
        return self.fc(total / is_word.sum(1).clamp(min=1))


def test_padding_is_excluded_from_the_word_mean():
    layer = WordMean("words", num_codes=3, width=2)
    codes = torch.tensor([[1, 2, 0, 0], [2, 1, 1, 1], [0, 0, 2, 0], [0, 0, 0, 0]])
    expected = [[2, 4], [1.5, 3], [3, 6], [0, 0]]
    assert layer.apply([TABLE], codes).tolist() == expected
    stacked = layer.apply_stacked([TABLE[None]], codes.T[None])
    assert stacked[0].T.tolist() == expected


def test_data_and_net_use_the_same_padding_code():
    assert PADDING == words.PADDING


def test_gradient_is_divided_among_words_and_zero_for_padding():
    table = TABLE.clone().requires_grad_()
    codes = torch.tensor([[1, 2, 2, 0]])
    y = WordMean("words", num_codes=3, width=2).apply([table], codes)
    (gradient,) = torch.autograd.grad((y * torch.tensor([3.0, 6.0])).sum(), table)
    torch.testing.assert_close(gradient, torch.tensor([[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]]))
    assert gradient[0].tolist() == [0, 0]


def test_fast_text_parameters_outputs_and_gradients_match_pytorch():
    torch.manual_seed(0)
    theirs = TorchFastText(num_codes=7, width=3, num_classes=4)
    net = FastText(width=3).build((6, 7), num_classes=4)
    params = parameters_to_vector(theirs.parameters()).detach().requires_grad_()
    assert len(params) == net.num_params
    codes = torch.randint(7, (9, 6))
    upstream = torch.randn(9, 4)
    torch.testing.assert_close(net.apply(params, codes), theirs(codes))
    (ours,) = torch.autograd.grad((net.apply(params, codes) * upstream).sum(), params)
    (theirs(codes) * upstream).sum().backward()
    torch.testing.assert_close(ours, parameters_to_vector([p.grad for p in theirs.parameters()]))


@pytest.mark.parametrize("projection", [None, 5])
@given(seed=st.integers(0, 999), K=st.integers(1, 4), B=st.integers(1, 5), L=st.integers(1, 6))
@settings(max_examples=20, deadline=None)
def test_stacked_fast_text_equals_single_nets(projection, seed, K, B, L):
    net = FastText(width=3, projection=projection).build((L, 4), num_classes=2)
    rng = np.random.default_rng(seed)
    params = torch.tensor(np.stack([net.init(rng) for _ in range(K)]), dtype=torch.float64)
    params.requires_grad_()
    codes = torch.tensor(rng.integers(0, 4, (K, B, L)))
    upstream = torch.tensor(rng.normal(size=(K, B, 2)))
    single = torch.stack([net.apply(p, mine) for p, mine in zip(params, codes, strict=True)])
    stacked = net.apply_stacked(params, codes)
    torch.testing.assert_close(stacked, single)
    one, other = (torch.autograd.grad((y * upstream).sum(), params)[0] for y in (single, stacked))
    torch.testing.assert_close(other, one)
    logits, features = net.with_features_stacked(params, codes)
    alone = [net.with_features(p, mine) for p, mine in zip(params, codes, strict=True)]
    torch.testing.assert_close(logits, torch.stack([each for each, _ in alone]))
    torch.testing.assert_close(features, torch.stack([each for _, each in alone]))


def test_initial_word_vectors_are_normal_and_zero_for_padding():
    net = FastText(width=50).build((5, 90), 2)
    assert net.can_stack
    pieces = net.named_parameters(net.init(np.random.default_rng(0)))
    assert list(pieces) == ["embedding.weight", "fc1.weight", "fc1.bias"]
    assert not pieces["embedding.weight"][0].any()
    assert pieces["embedding.weight"][1:].std() == pytest.approx(1, abs=0.05)  # 4,450 numbers


def test_fast_text_supports_inference_mode_and_empty_batches():
    net = FastText(width=3).build((6, 7), num_classes=4)
    params = torch.tensor(net.init(np.random.default_rng(0)))
    with torch.inference_mode():
        assert net.apply(params, torch.zeros(2, 6, dtype=torch.long)).shape == (2, 4)
        assert net.apply(params, torch.zeros(0, 6, dtype=torch.long)).shape == (0, 4)
        none = torch.zeros(1, 0, 6, dtype=torch.long)
        assert net.apply_stacked(params[None], none).shape == (1, 0, 4)


def test_word_mean_counts_multiply_adds_and_rejects_other_shapes():
    assert WordMean("words", 97, 8).multiply_adds((64, 97)) == 64 * 8
    for shape in ((80,), (80, 98), (0, 97)):
        with pytest.raises(ConfigError, match=r"97 kinds of codes, shape \(length, 97\), got"):
            Net((WordMean("words", 97, 8),), shape)
