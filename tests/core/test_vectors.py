"""Weighted sums of updates and models, and frozen arrays."""

import numpy as np
import pytest
import torch

from thalweg.core.vectors import BLOCK, blend, combine, freeze, is_frozen


def test_combine_by_hand():
    deltas = np.array([[1, 0, 4], [3, 2, 0]], dtype=np.float32)
    assert combine(np.array([0.25, 0.75]), deltas).tolist() == [2.5, 1.5, 1.0]


def test_combine_of_no_updates_is_zero():
    assert combine(np.empty(0), np.empty((0, 3), dtype=np.float32)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("num_params", [1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5])
@pytest.mark.parametrize("num_clients", [1, 6, 37])
def test_combine_agrees_with_double_precision(num_params, num_clients):
    rng = np.random.default_rng(num_params)
    deltas = rng.standard_normal((num_clients, num_params), dtype=np.float32)
    weights = rng.dirichlet(np.ones(num_clients))
    exact = weights @ deltas.astype(np.float64)
    total = combine(weights, deltas)
    assert total.dtype == np.float32
    np.testing.assert_allclose(total, exact, atol=2e-6)


def test_combine_does_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(0)
    deltas = rng.standard_normal((30, 3 * BLOCK + 11), dtype=np.float32)
    weights = rng.dirichlet(np.ones(30))
    before, seen = torch.get_num_threads(), set()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            seen.add(combine(weights, deltas).tobytes())
    finally:
        torch.set_num_threads(before)
    assert len(seen) == 1


def test_combine_accepts_strided_rows():
    matrix = np.arange(24, dtype=np.float32).reshape(4, 6)
    assert combine(np.array([1.0, 1.0]), matrix[::2, 1:4]).tolist() == [14, 16, 18]


def test_blend_by_hand():
    models = [np.array([1, 0, 4], dtype=np.float32), np.array([3, 2, 0], dtype=np.float32)]
    assert blend(np.array([0.25, 0.75]), models).tolist() == [2.5, 1.5, 1.0]


@pytest.mark.parametrize("num_params", [1, BLOCK, 2 * BLOCK + 5])
def test_blend_of_equal_models_is_the_model_bit_by_bit(num_params):
    model = np.random.default_rng(0).standard_normal(num_params, dtype=np.float32)
    weights = np.random.default_rng(1).dirichlet(np.ones(5))
    assert blend(weights, [model] * 5).tobytes() == model.tobytes()


def test_blend_ignores_infinite_models_with_zero_weight():
    models = [np.full(2, np.inf, dtype=np.float32), np.ones(2, dtype=np.float32)]
    assert blend(np.array([0.0, 1.0]), models).tolist() == [1, 1]


def test_freeze_copies_and_makes_read_only():
    values = np.arange(4.0)
    kept = freeze(values)
    values += 1
    assert kept.tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="read-only"):
        kept += 1
    assert is_frozen(kept)
    assert not is_frozen(values)
    values.flags.writeable = False
    assert is_frozen(values)
    assert not is_frozen(values[:2]), "the owner of the memory may make it writable"
    assert not is_frozen(np.broadcast_to(np.zeros(1), 5))
