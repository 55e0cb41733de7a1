from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.core.types import Ints
from thalweg.streams import Pachinko, Setting
from thalweg.streams.pachinko import draw_counts

LABELS = np.arange(2000) % 20  # class c belongs to coarse class c // 5
COARSE = LABELS // 5


def partition_pachinko(spec: Pachinko, num_clients: int, seed: int = 0) -> list[Ints]:
    where = Setting(LABELS, 20, 1, 10, 10, seed, coarse=COARSE)
    return spec.assign_rows(np.arange(2000), where, num_clients, np.random.default_rng(seed))


def test_pachinko_gives_clients_equal_numbers_of_samples() -> None:
    sizes = sorted(len(hand) for hand in partition_pachinko(Pachinko(), 30))
    assert sizes == [66] * 10 + [67] * 20


def test_small_root_concentration_gives_mostly_one_coarse_class() -> None:
    hands = partition_pachinko(Pachinko(root=1e-3, branch=100.0), 20)
    largest = [np.bincount(COARSE[hand], minlength=4).max() / len(hand) for hand in hands]
    # A client takes another coarse class only if its own is exhausted.
    assert np.median(largest) == 1.0


def test_large_branch_concentration_gives_balanced_fine_classes() -> None:
    first = max(
        partition_pachinko(Pachinko(root=1e-3, branch=1e6), 20),
        key=lambda hand: np.bincount(COARSE[hand]).max(),
    )
    # 100 draws over five classes: 20 each, standard deviation 4.
    counts = np.bincount(LABELS[first], minlength=20)
    assert abs(counts[counts > 0] - 20).max() <= 5 * 4
    assert (counts > 0).sum() == 5


def test_small_branch_concentration_gives_one_fine_class_per_coarse_class() -> None:
    hands = partition_pachinko(Pachinko(root=100.0, branch=1e-3), 200)
    # Ten draws each over four coarse classes, of which each gives mostly one fine class.
    kinds = [len(np.unique(LABELS[hand])) for hand in hands]
    assert np.median(kinds) <= 4


def test_pachinko_without_coarse_labels_is_rejected() -> None:
    where = Setting(LABELS, 20, 1, 10, 10, 0)
    with pytest.raises(ConfigError, match="pachinko needs data with coarse labels"):
        Pachinko().assign_rows(np.arange(2000), where, 3, np.random.default_rng(0))


def test_draw_counts_follow_the_probabilities() -> None:
    taken = draw_counts(
        10_000, np.array([0.5, 0.3, 0.2]), np.full(3, 10_000), np.random.default_rng(0)
    )
    assert taken.sum() == 10_000
    assert abs(taken - [5000, 3000, 2000]).max() < 5 * 50


def test_draws_of_an_exhausted_option_go_to_others_by_probability() -> None:
    likes, left = np.array([0.98, 0.015, 0.005]), np.array([1000, 9000, 9000])
    taken = draw_counts(9000, likes, left, np.random.default_rng(0))
    # 8000 draws between the others, three to one: 6000, standard deviation 39.
    assert taken[0] == 1000
    assert abs(taken[1] - 6000) < 5 * 40


def test_options_with_zero_probability_are_used_when_others_are_exhausted() -> None:
    taken = draw_counts(7, np.array([1.0, 0.0, 0.0]), np.array([2, 3, 4]), np.random.default_rng(0))
    assert taken[0] == 2
    assert taken.sum() == 7


@given(
    left=st.lists(st.integers(0, 6), min_size=1, max_size=6),
    count=st.integers(0, 40),
    seed=st.integers(0, 5),
)
def test_draw_counts_never_exceed_the_remaining_numbers(
    left: list[int], count: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    taken = draw_counts(count, rng.dirichlet(np.full(len(left), 0.1)), np.array(left), rng)
    assert (taken <= left).all()
    assert taken.sum() == min(count, sum(left))


@pytest.mark.parametrize("bad", [{"root": 0.0}, {"branch": float("inf")}], ids=str)
def test_invalid_pachinko_options_are_rejected(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Pachinko(**bad)
