"""Sparse mixtures of models equal tables with a column for each model."""

from __future__ import annotations

import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.mixtures import Mixtures, rank_rows
from thalweg.core.types import Floats, Ints

# Client 0 uses models 0 and 2, client 1 model 1, client 2 models 0, 3 and 4.
SHARED = np.array([[0.5, 0.0], [0.0, 1.0], [0.25, 0.0]])
ENTRIES = [(2, 4, 0.25), (0, 2, 0.5), (2, 3, 0.5), (1, 2, 0.0)]
ROWS = [[0.5, 0, 0.5, 0, 0], [0, 1, 0, 0, 0], [0.25, 0, 0, 0.5, 0.25]]


def some_mixtures() -> Mixtures:
    return Mixtures.from_entries(SHARED, ENTRIES, 5)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Mixtures, Floats, Ints]:
    """Return mixtures, the same weights as a table (N, models), and views."""
    number, num_shared = draw(st.integers(1, 7)), draw(st.integers(0, 3))
    num_own = draw(st.integers(0 if num_shared else 1, 4))
    weight = st.sampled_from([0.0, 0.0, 0.25, 1.0])
    width = num_shared + num_own
    rows = np.array([[draw(weight) for _ in range(width)] for _ in range(number)])
    entries = [
        (client, model, float(rows[client, model]))
        for client in range(number)
        for model in range(num_shared, width)
    ]
    mixtures = Mixtures.from_entries(rows[:, :num_shared].copy(), entries[::-1], width)
    views = np.array([draw(st.integers(0, 1)) for _ in range(number)])
    return mixtures, rows, views


def test_rows_contain_the_weights_of_shared_and_own_models() -> None:
    assert some_mixtures().get_rows([0, 1, 2]).tolist() == ROWS
    assert some_mixtures().get_rows([2, 0]).tolist() == [ROWS[2], ROWS[0]]
    assert len(some_mixtures().weights) == 3, "a weight of 0 is not stored"


def test_the_main_model_has_the_largest_weight() -> None:
    assert some_mixtures().find_main_models().tolist() == [0, 1, 3]


def test_clients_with_a_mixture_are_found() -> None:
    assert some_mixtures().equal(np.array(ROWS[2])).tolist() == [False, False, True]
    assert not some_mixtures().equal(np.array([0.5, 0, 0, 0, 0])).any(), "has another own model"
    assert not some_mixtures().equal(np.array([0.5, 0, 0.5, 0.5, 0])).any()


def test_ranks_are_lexicographic() -> None:
    ranks = some_mixtures().rank(np.zeros(3, dtype=np.int64))
    assert ranks.tolist() == [2, 0, 1]
    assert some_mixtures().rank(np.array([0, 1, 0])).tolist() == [1, 2, 0]


@given(tables())
def test_all_operations_equal_those_of_a_table(case: tuple[Mixtures, Floats, Ints]) -> None:
    mixtures, rows, views = case
    everyone = np.arange(len(rows))
    assert np.array_equal(mixtures.get_rows(everyone), rows)
    assert np.array_equal(
        mixtures.take(everyone[::-2]).get_rows(range(len(rows[::-2]))), rows[::-2]
    )
    assert np.array_equal(mixtures.find_main_models(), rows.argmax(axis=1))
    for row in rows:
        assert np.array_equal(mixtures.equal(row), (rows == row).all(axis=1))
    _, ranks = np.unique(np.column_stack([views, rows]), axis=0, return_inverse=True)
    assert np.array_equal(mixtures.rank(views), ranks.ravel())
    assert np.array_equal(
        rank_rows(list(rows.T)), np.unique(rows, axis=0, return_inverse=True)[1].ravel()
    )


def test_a_mean_has_the_bits_of_that_of_a_table() -> None:
    rng = np.random.default_rng(0)
    for num_shared in (1, 2, 5):
        shared = rng.random((1000, num_shared))
        entries = [(3 * k, num_shared + k, float(rng.random())) for k in range(300)]
        mixtures = Mixtures.from_entries(shared, entries, num_shared + 300)
        chosen = rng.random(1000) < 0.7
        expected = mixtures.get_rows(np.arange(1000))[chosen].mean(axis=0)
        assert mixtures.mean(chosen).tobytes() == expected.tobytes()
        usual = Mixtures.from_rows(shared)
        assert usual.mean(chosen).tobytes() == shared[chosen].mean(axis=0).tobytes()


def test_memory_grows_with_the_entries_not_with_clients_times_models() -> None:
    """A table of 100,000 clients and 2,001 models would take 1.6 GB."""
    tracemalloc.start()
    try:
        entries = [(50 * k, 1 + k, 0.5) for k in range(2000)]
        mixtures = Mixtures.from_entries(np.full((100_000, 1), 0.5), entries, 2001)
        assert len(np.unique(mixtures.rank(np.zeros(100_000, dtype=np.int64)))) == 2001
        assert mixtures.find_main_models()[50] == 0, "of equal weights the first"
        assert mixtures.equal(mixtures.get_rows([50])[0]).sum() == 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20e6, peak
