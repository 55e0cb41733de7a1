from __future__ import annotations

import numpy as np
import pytest

from thalweg.aggregation import Masked
from thalweg.aggregation.secure_aggregation import MAX_CLIENTS, MAX_WEIGHT
from thalweg.core.errors import ConfigError


def test_the_largest_sum_that_is_let_in_has_room() -> None:
    rule = Masked()
    largest = rule.encode_update(np.array([99.0], dtype=np.float32), MAX_WEIGHT)
    assert int(largest[0]) * MAX_CLIENTS < 2**63


def test_two_of_three_thirds_must_be_heard_and_never_fewer_than_three() -> None:
    assert [Masked().required_clients(asked) for asked in (2, 5, 50)] == [3, 4, 33]
    assert Masked(threshold=1.0, min_clients=2).required_clients(5) == 5


def test_a_mean_that_nobody_can_have_sent_is_none() -> None:
    rule = Masked(bound=1.0, bits=4)
    assert rule.decode_mean(np.array([16 * 3, -16 * 3]), 3).tolist() == [1.0, -1.0]
    assert rule.decode_mean(np.array([17 * 3, 0]), 3) is None


def test_a_bound_that_single_precision_does_not_have_is_no_reason_for_refusal() -> None:
    rule = Masked(bound=0.1)
    total = rule.encode_update(np.array([5.0], dtype=np.float32), 7)
    assert rule.decode_mean(total, 7) is not None


def test_half_of_the_clients_are_not_enough_to_open_a_mask() -> None:
    with pytest.raises(ConfigError, match="threshold"):
        Masked(threshold=0.5)
    with pytest.raises(ConfigError, match="min_clients"):
        Masked(min_clients=1)
