from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.theory import from_fixed, recover_secret, split_secret, to_fixed


def test_two_shares_recover_the_secret_by_interpolation() -> None:
    # f(x) = 5 + 3 x: shares 8, 11, 14.
    shares = split_secret(b"\x05", number=3, threshold=2, draw=lambda k: 3)
    assert [int.from_bytes(share, "big") for share in shares] == [8, 11, 14]
    assert recover_secret({1: shares[0], 2: shares[1]}, length=1) == b"\x05"
    assert recover_secret({2: shares[1], 3: shares[2]}, length=1) == b"\x05"


def test_too_few_shares_do_not_recover_the_secret() -> None:
    shares = split_secret(b"\x05", number=3, threshold=3, draw=lambda k: 10**100 + k)
    assert recover_secret({1: shares[0], 2: shares[1]}, length=1) is None
    assert recover_secret({1: shares[0], 2: shares[1], 3: shares[2]}, length=1) == b"\x05"


@given(st.binary(min_size=1, max_size=64), st.integers(1, 8), st.data())
def test_any_sufficient_set_of_shares_recovers_the_secret(
    secret: bytes, number: int, data: st.DataObject
) -> None:
    threshold = data.draw(st.integers(1, number))
    drawn = data.draw(st.lists(st.integers(0, 2**600), min_size=number, max_size=number))
    shares = split_secret(secret, number, threshold, lambda k: drawn[k])
    places = data.draw(
        st.lists(st.integers(1, number), min_size=threshold, max_size=threshold, unique=True)
    )
    assert recover_secret({place: shares[place - 1] for place in places}, len(secret)) == secret


def test_invalid_secret_shares_are_rejected() -> None:
    with pytest.raises(ConfigError, match="from 1 to the number of shares, 3, got 4"):
        split_secret(b"x", 3, 4, lambda k: 1)
    with pytest.raises(ConfigError, match="at most 64 bytes, got 65"):
        split_secret(bytes(65), 3, 2, lambda k: 1)


@given(st.lists(st.floats(-4, 4, width=32), min_size=1, max_size=5), st.integers(1, 1000))
def test_fixed_point_round_trip_is_accurate_to_one_step(numbers: list[float], weight: int) -> None:
    x = np.array(numbers, dtype=np.float32)
    back = from_fixed(to_fixed(x, 4.0, 20) * weight, weight, 4.0, 20)
    np.testing.assert_allclose(back, x, atol=4.0 / 2**20, rtol=1e-6)


def test_fixed_point_values_are_clipped_to_the_bound() -> None:
    x = np.array([9.0, -1e30, 4.0], dtype=np.float32)
    assert to_fixed(x, 4.0, 8).tolist() == [256, -256, 256]
