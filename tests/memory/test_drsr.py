import numpy as np
import pytest

from contracts.examples import some_memory_context
from thalweg.memory import Drsr


def test_mode_ratio_renews_the_share_of_new_samples_among_all_seen():
    policy, rng = Drsr(), np.random.default_rng(0)
    state, renewed = policy.init(500, 500), []
    for _ in range(5):
        state, kept = policy.keep(state, some_memory_context(500, 500, 500), rng)
        renewed.append(np.count_nonzero(kept >= 500))
    assert renewed == [250, 167, 125, 100, 83]  # 1/2, 1/3, 1/4, 1/5, 1/6 of 500


def test_mode_match_keeps_the_class_histogram_of_all_samples_seen():
    policy = Drsr(mode="match")
    context = some_memory_context(6, 6, 6)._replace(
        held_labels=np.array([0, 0, 0, 0, 0, 0]), new_labels=np.array([1, 1, 1, 1, 2, 2])
    )
    state, kept = policy.keep(policy.init(6, 6), context, np.random.default_rng(0))
    assert state.by_class.tolist() == [6, 4, 2]
    labels = np.concatenate([context.held_labels, context.new_labels])[kept]
    assert np.bincount(labels).tolist() == [3, 2, 1]


def test_an_unknown_mode_is_rejected():
    with pytest.raises(Exception, match="unknown mode"):
        Drsr(mode="mach")
