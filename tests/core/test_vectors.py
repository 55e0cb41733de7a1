"""The weighted sum of updates."""

import numpy as np
import pytest
import torch

from thalweg.core.vectors import BLOCK, blend, combine, freeze, is_frozen


def test_by_hand():
    deltas = np.array([[1, 0, 4], [3, 2, 0]], dtype=np.float32)
    assert combine(np.array([0.25, 0.75]), deltas).tolist() == [2.5, 1.5, 1.0]


def test_nobody_moves_nothing():
    assert combine(np.empty(0), np.empty((0, 3), dtype=np.float32)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("num_params", [1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5])
@pytest.mark.parametrize("num_clients", [1, 6, 37])
def test_blocks_and_rest_agree_with_double_precision(num_params, num_clients):
    rng = np.random.default_rng(num_params)
    deltas = rng.standard_normal((num_clients, num_params), dtype=np.float32)
    weights = rng.dirichlet(np.ones(num_clients))
    exact = weights @ deltas.astype(np.float64)
    total = combine(weights, deltas)
    assert total.dtype == np.float32
    np.testing.assert_allclose(total, exact, atol=2e-6)


def test_the_number_of_threads_changes_no_bit():
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


def test_rows_of_a_larger_matrix_will_do():
    matrix = np.arange(24, dtype=np.float32).reshape(4, 6)
    assert combine(np.array([1.0, 1.0]), matrix[::2, 1:4]).tolist() == [14, 16, 18]


def test_models_that_lie_apart_are_blended():
    models = [np.array([1, 0, 4], dtype=np.float32), np.array([3, 2, 0], dtype=np.float32)]
    assert blend(np.array([0.25, 0.75]), models).tolist() == [2.5, 1.5, 1.0]


@pytest.mark.parametrize("num_params", [1, BLOCK, 2 * BLOCK + 5])
def test_a_model_blended_with_itself_is_itself_to_the_bit(num_params):
    model = np.random.default_rng(0).standard_normal(num_params, dtype=np.float32)
    weights = np.random.default_rng(1).dirichlet(np.ones(5))
    assert blend(weights, [model] * 5).tobytes() == model.tobytes()


def test_a_model_without_weight_does_not_matter_even_if_it_is_infinite():
    models = [np.full(2, np.inf, dtype=np.float32), np.ones(2, dtype=np.float32)]
    assert blend(np.array([0.0, 1.0]), models).tolist() == [1, 1]


def test_what_is_frozen_stays():
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
    assert not is_frozen(values[:2]), "who owns it may write again"
    assert not is_frozen(np.broadcast_to(np.zeros(1), 5))
