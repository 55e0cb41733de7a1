from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Ints
from thalweg.selection import draw_successive, draw_systematic
from thalweg.selection.drawing import (
    DRAWS,
    capped_inclusion,
    fill_uniformly,
    mix_with_uniform,
    num_positive,
)


def by_enumeration(probs: list[float], size: int) -> dict[tuple[int, ...], float]:
    """Return the probability of every set when drawing one by one and renormalising."""
    chances: dict[tuple[int, ...], float] = {}
    for order in itertools.permutations(range(len(probs)), size):
        chance, left = 1.0, 1.0
        for item in order:
            chance *= probs[item] / left
            left -= probs[item]
        chances[tuple(sorted(order))] = chances.get(tuple(sorted(order)), 0.0) + chance
    return chances


def weights(low: float = 0.0) -> st.SearchStrategy[list[float]]:
    return st.lists(st.floats(low, 1.0), min_size=2, max_size=8).filter(lambda w: sum(w) > 0.1)


def test_successive_drawing_has_the_probabilities_of_drawing_one_by_one() -> None:
    rng, probs = np.random.default_rng(0), np.array([0.4, 0.3, 0.2, 0.1])
    times = Counter(tuple(draw_successive(probs, 2, rng).tolist()) for _ in range(20_000))
    for drawn, chance in by_enumeration([0.4, 0.3, 0.2, 0.1], 2).items():
        spread = (20_000 * chance * (1 - chance)) ** 0.5
        assert abs(times[drawn] - 20_000 * chance) < 5 * spread, drawn


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_systematic_drawing_has_the_capped_inclusion_probabilities(size: int) -> None:
    rng, probs = np.random.default_rng(size), np.array([0.45, 0.05, 0.0, 0.2, 0.17, 0.13])
    times = np.zeros(6)
    for _ in range(10_000):
        times[draw_systematic(probs, size, rng)] += 1
    inclusion = capped_inclusion(probs, size)
    spread = np.sqrt(10_000 * inclusion * (1 - inclusion))
    assert (abs(times - 10_000 * inclusion) <= 5 * spread).all()


def test_the_expected_mean_of_a_systematic_draw_is_the_weighted_mean() -> None:
    # The inclusion is 2 a, so that the expected mean of r is sum of a_i r_i.
    rng, probs, r = np.random.default_rng(1), np.array([0.1, 0.4, 0.3, 0.2]), np.arange(4) / 5
    means = [r[draw_systematic(probs, 2, rng)].mean() for _ in range(10_000)]
    assert np.mean(means) == pytest.approx(probs @ r, abs=5 * 0.2 / 100)


@given(w=weights(), data=st.data())
def test_capped_inclusion_sums_to_the_size_and_is_at_most_one(
    w: list[float], data: st.DataObject
) -> None:
    probs = np.array(w) / sum(w)
    size = data.draw(st.integers(1, num_positive(probs)))
    inclusion = capped_inclusion(probs, size)
    assert inclusion.sum() == pytest.approx(size)
    assert inclusion.min() >= 0
    assert inclusion.max() <= 1
    is_open = (inclusion > 0) & (inclusion < 1)
    ratios = inclusion[is_open] / probs[is_open]
    assert np.allclose(ratios, ratios[:1]), "values below one stay in proportion"


def test_excess_inclusion_goes_to_the_others_and_may_cap_them_too() -> None:
    # 3 x 0.5 is clipped to 1; the other two draws are split 7:2:1; 1.4 is clipped to 1; the last
    # draw is split 2:1.
    probs = np.array([0.5, 0.35, 0.1, 0.05])
    assert capped_inclusion(probs, 3) == pytest.approx([1, 1, 2 / 3, 1 / 3])


@pytest.mark.parametrize("draw", [*DRAWS.values()], ids=[*DRAWS])
@given(w=weights(), data=st.data())
def test_a_draw_has_different_items_of_positive_probability(
    draw: Callable[[Floats, int, np.random.Generator], Ints], w: list[float], data: st.DataObject
) -> None:
    probs = np.array(w) / sum(w)
    size = data.draw(st.integers(1, num_positive(probs)))
    drawn = draw(probs, size, np.random.default_rng(data.draw(st.integers(0, 100))))
    assert len(drawn) == len(set(drawn.tolist())) == size
    assert drawn.tolist() == sorted(drawn.tolist())
    assert (probs[drawn] > 0).all()


@pytest.mark.parametrize("draw", [*DRAWS.values()], ids=[*DRAWS])
def test_too_few_positive_probabilities_are_rejected(
    draw: Callable[[Floats, int, np.random.Generator], Ints],
) -> None:
    with pytest.raises(ConfigError, match="cannot draw 3 different items: 2 of 4 probabilities"):
        draw(np.array([0.6, 0.4, 0.0, 1e-15]), 3, np.random.default_rng(0))


def test_mixing_adds_a_share_of_the_uniform_distribution() -> None:
    probs = mix_with_uniform(np.array([0.6, 0.4, 0, 0, 0]), 0.05)
    assert probs == pytest.approx([0.58, 0.39, 0.01, 0.01, 0.01])


def test_filling_takes_all_positive_items_and_draws_the_rest_uniformly() -> None:
    rng, times = np.random.default_rng(0), np.zeros(5)
    for _ in range(3000):
        drawn = fill_uniformly(np.array([0.6, 0.0, 0.4, 0.0, 1e-15]), 3, rng)
        assert len(set(drawn.tolist())) == 3
        times[drawn] += 1
    assert times[[0, 2]].tolist() == [3000, 3000]
    assert abs(times[[1, 3, 4]] - 1000).max() < 5 * 26
