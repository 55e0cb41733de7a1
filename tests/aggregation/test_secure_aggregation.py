from __future__ import annotations

import numpy as np
import pytest

from thalweg.aggregation import Masked
from thalweg.aggregation.secure_aggregation import MAX_CLIENTS, MAX_WEIGHT
from thalweg.core.errors import ConfigError


def test_largest_possible_sum_fits_into_63_bits() -> None:
    rule = Masked()
    largest = rule.encode_update(np.array([99.0], dtype=np.float32), MAX_WEIGHT)
    assert int(largest[0]) * MAX_CLIENTS < 2**63


def test_required_clients_is_two_thirds_of_the_cohort_and_at_least_three() -> None:
    assert [Masked().required_clients(size) for size in (2, 5, 50)] == [3, 4, 33]
    assert Masked(threshold=1.0, min_clients=4).required_clients(5) == 5


def test_mean_above_the_bound_decodes_to_none() -> None:
    rule = Masked(bound=1.0, bits=4)
    assert rule.decode_mean(np.array([16 * 3, -16 * 3]), 3).tolist() == [1.0, -1.0]
    assert rule.decode_mean(np.array([17 * 3, 0]), 3) is None


def test_mean_at_a_bound_that_is_rounded_in_single_precision_is_valid() -> None:
    rule = Masked(bound=0.1)
    total = rule.encode_update(np.array([5.0], dtype=np.float32), 7)
    assert rule.decode_mean(total, 7) is not None


def test_threshold_of_one_half_or_a_single_client_is_rejected() -> None:
    with pytest.raises(ConfigError, match="threshold"):
        Masked(threshold=0.5)
    with pytest.raises(ConfigError, match="min_clients"):
        Masked(min_clients=2)
