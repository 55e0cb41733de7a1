"""Updates on a device behave as an array, and are summed where they are."""

import numpy as np
import pytest
import torch

from thalweg.core.vectors import RemoteRows, combine, find_finite_rows, zero_columns
from thalweg.engine.device_deltas import DeviceDeltas

ROWS = np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32)
WEIGHTS = np.array([0.1, 0.2, 0.3, 0.15, 0.25])


@pytest.fixture
def deltas():
    stacks = torch.tensor(ROWS).split((2, 3))
    return DeviceDeltas([row for stack in stacks for row in stack], 40)


def test_they_are_remote_rows_with_the_shape_of_an_array(deltas):
    assert isinstance(deltas, RemoteRows)
    assert (deltas.shape, deltas.nbytes, len(deltas)) == ((5, 40), 800, 5)
    np.testing.assert_array_equal(np.asarray(deltas), ROWS)
    np.testing.assert_array_equal(deltas[3], ROWS[3])
    np.testing.assert_array_equal(deltas[1:3], ROWS[1:3])
    np.testing.assert_array_equal(np.stack(list(deltas)), ROWS)


def test_the_weighted_sum_is_that_of_arrays(deltas):
    np.testing.assert_allclose(combine(WEIGHTS, deltas), combine(WEIGHTS, ROWS), rtol=1e-6)
    exact = DeviceDeltas(list(torch.tensor([[1.0, 2.0], [10.0, 20.0]])), 2)
    assert combine(np.array([0.5, 2.0]), exact).tolist() == [20.5, 41.0]


@pytest.mark.parametrize(
    "chosen", [np.array([3, 1]), np.array([True, False, False, True, True])], ids=["rows", "mask"]
)
def test_some_rows_are_of_the_same_class(deltas, chosen):
    some = deltas[chosen]
    assert isinstance(some, DeviceDeltas)
    np.testing.assert_array_equal(np.asarray(some), ROWS[chosen])


def test_columns_can_be_zero(deltas):
    changed = zero_columns(deltas, 30)[np.array([4, 0])]
    expected = ROWS[[4, 0]].copy()
    expected[:, 30:] = 0
    np.testing.assert_array_equal(np.asarray(changed), expected)
    np.testing.assert_allclose(
        combine(WEIGHTS[:2], changed), combine(WEIGHTS[:2], expected), rtol=1e-6
    )


def test_rows_that_are_not_finite_are_found():
    rows = torch.tensor([[1.0, 2.0], [float("nan"), 0.0], [0.0, float("inf")]])
    assert find_finite_rows(DeviceDeltas(list(rows), 2)).tolist() == [True, False, False]


def test_there_may_be_no_rows():
    nothing = DeviceDeltas([], 3)
    assert nothing.shape == (0, 3)
    assert find_finite_rows(nothing).shape == (0,)
    assert combine(np.empty(0), nothing).tolist() == [0, 0, 0]


def test_rows_are_not_copied_back_before_they_are_used():
    rows = list(torch.zeros(3, 4, device="meta"))
    some = DeviceDeltas(rows, 4).with_zero_columns(2)[np.array([0, 2])]
    assert some.shape == (2, 4)
    with pytest.raises(NotImplementedError, match="meta"):
        some.combine(np.ones(2))
