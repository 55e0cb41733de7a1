from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contracts.examples import some_memory_context
from thalweg.memory import Fifo


@given(capacity=st.integers(1, 10), arrivals=st.lists(st.integers(0, 15), max_size=8))
def test_the_memory_holds_the_most_recent_samples(capacity: int, arrivals: list[int]) -> None:
    memory, arrived = np.empty(0, dtype=np.int64), 0
    for num_new in arrivals:
        context = some_memory_context(capacity, len(memory), num_new)
        _, kept = Fifo().keep(None, context, np.random.default_rng(0))
        memory = np.concatenate([memory, arrived + np.arange(num_new)])[kept]
        arrived += num_new
    assert memory.tolist() == list(range(arrived))[-capacity:]


def test_the_predicted_renewal_is_arrivals_over_capacity_at_most_one() -> None:
    assert Fifo().predict_renewal(None, some_memory_context(8, 8, 2)).tolist() == [0.25] * 3
    assert Fifo().predict_renewal(None, some_memory_context(8, 8, 20)).tolist() == [1.0] * 3
