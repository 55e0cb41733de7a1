"""Covering arrays, which choose the combinations of components that are tested."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covering import covering_array


def factors_of(sizes: list[int]) -> dict[str, list[str]]:
    return {f"f{i}": [f"v{value}" for value in range(size)] for i, size in enumerate(sizes)}


def largest_product(sizes: list[int]) -> int:
    """Return the number of pairs of the two largest factors, a lower bound of the rows."""
    return max((a * b for a, b in combinations(sizes, 2)), default=0)


@given(st.lists(st.integers(1, 7), min_size=2, max_size=8))
def test_each_pair_of_values_occurs_in_some_row(sizes: list[int]) -> None:
    factors = factors_of(sizes)
    rows = covering_array(factors)
    for one, other in combinations(factors, 2):
        met = {(row[one], row[other]) for row in rows}
        assert met == set(product(factors[one], factors[other]))


@given(st.lists(st.integers(1, 7), min_size=2, max_size=8))
def test_rows_have_one_value_per_factor_in_order(sizes: list[int]) -> None:
    factors = factors_of(sizes)
    for row in covering_array(factors):
        assert list(row) == list(factors)
        assert all(value in factors[name] for name, value in row.items())


def test_rows_are_deterministic() -> None:
    factors = factors_of([4, 3, 5, 2])
    assert covering_array(factors) == covering_array(factors)


@pytest.mark.parametrize(
    "sizes",
    [
        [2, 2, 2],
        [3, 3, 3, 3],
        [9, 6, 4, 4, 4, 4, 3, 3, 2, 2, 2, 2, 2],
        [12, 8, 7, 6, 6, 5, 5, 4, 2, 2, 2, 2],
    ],
)
def test_number_of_rows_is_near_the_lower_bound(
    sizes: list[int],
) -> None:
    least = largest_product(sizes)
    assert least <= len(covering_array(factors_of(sizes))) <= 1.34 * least


def test_number_of_rows_is_minimal_with_one_large_factor() -> None:
    """The pairs of the two largest factors leave room for all other pairs."""
    sizes = [20, 5, 2, 2, 2]
    assert len(covering_array(factors_of(sizes))) == 100
