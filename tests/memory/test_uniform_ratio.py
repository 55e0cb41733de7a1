from __future__ import annotations

import numpy as np
import pytest

from contracts.examples import some_memory_context
from thalweg.core.errors import ConfigError
from thalweg.memory import UniformRatio


def num_renewed(policy: UniformRatio, capacity: int, num_new: int, seed: int = 0) -> int:
    context = some_memory_context(capacity, capacity, num_new)
    _, kept = policy.keep(None, context, np.random.default_rng(seed))
    return int((kept >= capacity).sum())


@pytest.mark.parametrize(
    ("budget", "capacity", "renewed"), [(0.5, 500, 250), (0.5, 5, 3), (0.2, 7, 1), (1.0, 9, 9)]
)
def test_a_tick_renews_the_rounded_budget(budget: float, capacity: int, renewed: int) -> None:
    assert num_renewed(UniformRatio(budget), capacity, num_new=capacity) == renewed


def test_a_budget_below_half_a_sample_renews_nothing() -> None:
    assert num_renewed(UniformRatio(0.01), 10, num_new=10) == 0


def test_stochastic_rounding_spends_the_exact_budget_on_average() -> None:
    policy = UniformRatio(0.01, stochastic_rounding=True)
    renewed = [num_renewed(policy, 10, num_new=10, seed=seed) for seed in range(3000)]
    # A tenth of a sample per tick; standard deviation 0.0055.
    assert abs(np.mean(renewed) - 0.1) < 5 * 0.0055


def test_renewal_and_its_prediction_are_limited_by_the_arrivals() -> None:
    policy = UniformRatio(0.5)
    assert num_renewed(policy, 8, num_new=2) == 2
    assert policy.predict_renewal(None, some_memory_context(8, 8, 2)).tolist() == [0.25] * 3
    assert policy.predict_renewal(None, some_memory_context(8, 8, 8)).tolist() == [0.5] * 3


@pytest.mark.parametrize("budget", [0.0, -0.5, 1.5, float("nan")])
def test_an_invalid_budget_is_rejected(budget: float) -> None:
    with pytest.raises(ConfigError, match="budget must lie in"):
        UniformRatio(budget)
