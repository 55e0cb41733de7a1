import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.examples import some_memory_context
from thalweg.memory import Drsr
from thalweg.memory.drsr import quotas


def test_the_shares_of_the_sheet():
    policy, rng = Drsr(), np.random.default_rng(0)
    state, renewed = policy.init(500, 500), []
    for _ in range(5):
        state, kept = policy.keep(state, some_memory_context(500, 500, 500), rng)
        renewed.append(np.count_nonzero(kept >= 500))
    assert renewed == [250, 167, 125, 100, 83]  # 1/2, 1/3, 1/4, 1/5, 1/6 of 500


def test_matching_keeps_the_histogram_of_everything_seen():
    policy = Drsr(mode="match")
    intake = some_memory_context(6, 6, 6)._replace(
        held_labels=np.array([0, 0, 0, 0, 0, 0]), new_labels=np.array([1, 1, 1, 1, 2, 2])
    )
    state, kept = policy.keep(policy.init(6, 6), intake, np.random.default_rng(0))
    assert state.by_class.tolist() == [6, 4, 2]
    labels = np.concatenate([intake.held_labels, intake.new_labels])[kept]
    assert np.bincount(labels).tolist() == [3, 2, 1]


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=6),
    st.lists(st.floats(0, 1), min_size=6, max_size=6),
    st.data(),
)
def test_quotas_fill_the_room_with_what_is_there(there, shares, data):
    room = data.draw(st.integers(0, sum(there)))
    counts = quotas(np.array(shares[: len(there)]), np.array(there), room)
    assert counts.sum() == room
    assert (counts >= 0).all()
    assert (counts <= there).all()


def test_largest_remainders_decide():
    assert quotas(np.array([0.55, 0.25, 0.2]), np.array([9, 9, 9]), 3).tolist() == [2, 1, 0]


def test_an_unknown_mode_is_refused():
    with pytest.raises(Exception, match="unknown mode"):
        Drsr(mode="mach")
