"""Mini-batches and settings of `LocalTraining`."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.local import LocalTraining

some_memory = st.integers(1, 60)
some_batch = st.integers(1, 20)


def drawn(local, held, seed=0):
    return local.batches(held, np.random.default_rng(seed))


@given(held=some_memory, batch_size=some_batch, steps=st.integers(1, 5), seed=st.integers(0, 99))
def test_a_mini_batch_has_different_samples_of_the_memory(held, batch_size, steps, seed):
    batches = drawn(LocalTraining(lr=0.1, batch_size=batch_size, steps=steps), held, seed)
    assert len(batches) == steps
    for batch in batches:
        assert len(batch) == min(batch_size, held)
        assert len(set(batch.tolist())) == len(batch)
        assert batch.min() >= 0
        assert batch.max() < held


@given(held=some_memory, batch_size=some_batch, passes=st.integers(1, 4), seed=st.integers(0, 99))
def test_a_pass_uses_every_sample_once(held, batch_size, passes, seed):
    batches = drawn(LocalTraining(lr=0.1, batch_size=batch_size, passes=passes), held, seed)
    per_pass = -(-held // batch_size)
    assert len(batches) == passes * per_pass
    for p in range(passes):
        mine = batches[p * per_pass : (p + 1) * per_pass]
        assert sorted(np.concatenate(mine).tolist()) == list(range(held))
        assert all(len(batch) == batch_size for batch in mine[:-1])


@given(held=some_memory, batch_size=some_batch, passes=st.floats(0.01, 4))
def test_part_of_a_pass_uses_that_part_of_the_samples(held, batch_size, passes):
    batches = drawn(LocalTraining(lr=0.1, batch_size=batch_size, passes=passes), held)
    assert sum(len(batch) for batch in batches) == max(1, round(passes * held))
    assert min(len(batch) for batch in batches) >= 1


@pytest.mark.parametrize("local", [LocalTraining(lr=0.1, steps=3), LocalTraining(lr=0.1, passes=2)])
def test_an_empty_memory_gives_no_mini_batch(local):
    assert drawn(local, 0) == []


def test_a_small_memory_is_one_mini_batch_in_order():
    assert [b.tolist() for b in drawn(LocalTraining(lr=1, batch_size=4, steps=2), 3)] == [
        [0, 1, 2]
    ] * 2


@pytest.mark.parametrize(
    ("held", "passes", "sizes"),
    [(9, 1, [4, 5]), (9, 2, [4, 5, 4, 5]), (8, 1, [4, 4]), (2, 1.5, [3]), (1, 3, []), (2, 0.5, [])],
)
def test_a_batch_of_one_sample_is_joined_to_the_one_before_or_left_out(held, passes, sizes):
    local = LocalTraining(lr=0.1, batch_size=4, passes=passes)
    found = local.batches(held, np.random.default_rng(0), smallest=2)
    assert [len(batch) for batch in found] == sizes
    plain = local.batches(held, np.random.default_rng(0))
    if sizes:
        np.testing.assert_array_equal(np.concatenate(found), np.concatenate(plain))


def test_steps_on_one_sample_are_left_out():
    local = LocalTraining(lr=0.1, steps=2)
    assert local.batches(1, np.random.default_rng(0), smallest=2) == []
    assert [len(batch) for batch in local.batches(2, np.random.default_rng(0), 2)] == [2, 2]


@pytest.mark.parametrize(
    ("held", "passes", "sizes"),
    [(9, 1, [4, 4]), (9, 2, [4, 4] * 2), (8, 1, [4, 4]), (3, 5, []), (9, 0.5, [4]), (450, 1, 112)],
)
def test_a_last_batch_that_is_too_small_can_be_dropped(held, passes, sizes):
    local = LocalTraining(lr=0.1, batch_size=4, passes=passes)
    found = drawn(replace(local, drop_last=True), held)
    assert [len(batch) for batch in found] == (sizes if isinstance(sizes, list) else [4] * sizes)
    whole = [batch for batch in drawn(local, held) if len(batch) == 4]
    assert [batch.tolist() for batch in found] == [batch.tolist() for batch in whole]


def test_an_optimizer_is_kept_within_a_number_of_rounds():
    local = LocalTraining(lr=0.1, momentum=0.9, steps=1)
    kept = replace(local, optimizer_state="keep")
    assert [kept.keeps_between(0, rnd) for rnd in (1, 3, 99)] == [True] * 3
    by_step = replace(kept, keep_rounds=3)
    found = [by_step.keeps_between(last, last + 1) for last in range(6)]
    assert found == [True, True, False, True, True, False]
    assert not by_step.keeps_between(1, 4)
    assert not local.keeps_between(0, 1)


def test_two_passes_have_different_orders():
    first, second = drawn(LocalTraining(lr=0.1, batch_size=50, passes=2), 50)
    assert first.tolist() != second.tolist()


def test_all_samples_are_drawn_with_equal_probability():
    local = LocalTraining(lr=0.1, batch_size=5, steps=2000)
    counts = np.bincount(np.concatenate(drawn(local, 20)), minlength=20)
    # Each step takes each of 20 samples with probability 1/4: 500 of 2000, standard deviation 19.
    assert abs(counts - 500).max() < 5 * 19


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lr": 0, "steps": 1}, "lr must be positive"),
        ({"lr": float("nan"), "steps": 1}, "lr must be positive"),
        ({"lr": 1, "momentum": 1.0, "steps": 1}, r"momentum must lie in \[0, 1\), got 1.0"),
        ({"lr": 1, "weight_decay": -1, "steps": 1}, "weight_decay"),
        ({"lr": 1, "batch_size": 0, "steps": 1}, "batch_size must be at least 1, got 0"),
        ({"lr": 1}, "either steps or passes"),
        ({"lr": 1, "steps": 1, "passes": 1}, "got steps=1, passes=1"),
        ({"lr": 1, "steps": 0}, "steps must be at least 1"),
        ({"lr": 1, "passes": 0}, "passes must be positive"),
        ({"lr": 1, "steps": 1, "optimizer": "adam", "momentum": 0.9}, "momentum=0.9 has no effect"),
        ({"lr": 1, "steps": 1, "optimizer": "rprop", "weight_decay": 1}, "weight_decay=1 has no"),
        ({"lr": 1, "steps": 1, "optimizer_state": "keep"}, "no effect on SGD without momentum"),
        ({"lr": 1, "steps": 1, "optimizer_state": "kept"}, "Did you mean 'keep'"),
        ({"lr": 1, "steps": 1, "keep_rounds": 5}, "keep_rounds=5 has no effect with local.opt"),
        ({"lr": 1, "steps": 1, "keep_rounds": 0}, "keep_rounds must be at least 1"),
        ({"lr": 1, "steps": 7, "drop_last": True}, "no effect with local.steps=7.*local.passes"),
        ({"lr": 1, "steps": 1, "optimizer": 3}, "local.optimizer|optimizer: expected a kind"),
    ],
)
def test_invalid_parameters_are_rejected(fields, message):
    with pytest.raises(ConfigError, match=message):
        LocalTraining(**fields)
