"""Hypothesis strategies and constants shared by the tests of the theory package."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

THIRDS = (1 / 3, 1 / 3, 1 / 3)
SPREAD = (0.1, 0.5, 2.0)  # heterogeneity of three states
CLIENTS = ((0.5, 0.3, 0.2), (0.1, 0.1, 0.8), THIRDS)  # state probabilities of three clients


class Case(NamedTuple):
    """One client's states."""

    probs: np.ndarray  # (M,) some may be zero
    importance: np.ndarray  # (M,)
    heterogeneity: np.ndarray  # (M,)
    budget: float


def rows(size: int, low: float, high: float) -> st.SearchStrategy[np.ndarray]:
    return st.lists(st.floats(low, high), min_size=size, max_size=size).map(np.array)


@st.composite
def distributions(draw: st.DrawFn, size: int) -> np.ndarray:
    """Probabilities with some zeros, none of the others tiny."""
    entry = st.one_of(st.just(0.0), st.floats(0.01, 1.0))
    raw = np.array(draw(st.lists(entry, min_size=size, max_size=size)))
    raw[draw(st.integers(0, size - 1))] += 0.1
    return raw / raw.sum()


@st.composite
def cases(draw: st.DrawFn, max_states: int = 7, max_budget: float = 1.0) -> Case:
    size = draw(st.integers(1, max_states))
    return Case(
        draw(distributions(size)),
        draw(distributions(size)),
        draw(rows(size, 0.0, 5.0)),
        draw(st.floats(0.01, max_budget)),
    )


def scale_to_budget(probs: np.ndarray, wish: np.ndarray, budget: float) -> np.ndarray:
    """Scale `wish` towards 0 or 1 until it spends the budget, which gives a feasible point."""
    spent = float(probs @ wish)
    if spent >= budget:
        return wish * (budget / spent)
    return 1 - (1 - wish) * ((1 - budget) / (1 - spent))
