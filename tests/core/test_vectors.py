from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.types import Floats, Floats32
from thalweg.core.vectors import BLOCK, combine


def updates(num: int, num_params: int, seed: int = 0) -> tuple[Floats, Floats32]:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(num)), rng.normal(size=(num, num_params)).astype(np.float32)


@given(num=st.integers(1, 20), num_params=st.integers(0, 30), seed=st.integers(0, 9))
def test_it_is_the_weighted_sum(num: int, num_params: int, seed: int) -> None:
    weights, deltas = updates(num, num_params, seed)
    total = combine(weights, deltas)
    assert total.dtype == np.float32
    assert total == pytest.approx(weights @ deltas.astype(np.float64), abs=1e-5)


@pytest.mark.parametrize("num_params", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 3])
def test_blocks_leave_no_seam(num_params: int) -> None:
    weights, deltas = updates(3, num_params)
    assert combine(weights, deltas).shape == (num_params,)
    assert abs(combine(weights, deltas) - weights @ deltas.astype(np.float64)).max() < 1e-5


def test_the_sum_over_nobody_is_zero() -> None:
    assert combine(np.empty(0), np.empty((0, 3), dtype=np.float32)).tolist() == [0, 0, 0]


def test_the_updates_are_untouched_and_may_lie_anywhere() -> None:
    weights, deltas = updates(6, 5)
    before = deltas.copy()
    every_other = combine(weights[::2], deltas[::2])
    assert every_other == pytest.approx(weights[::2] @ deltas[::2], abs=1e-6)
    assert (deltas == before).all()


def test_the_last_bit_does_not_depend_on_the_number_of_cores() -> None:
    weights, deltas = updates(7, 3 * BLOCK + 5)
    threads = torch.get_num_threads()
    sums = []
    try:
        for cores in (1, 2, 4):
            torch.set_num_threads(cores)
            sums.append(combine(weights, deltas).tobytes())
    finally:
        torch.set_num_threads(threads)
    assert len(set(sums)) == 1
