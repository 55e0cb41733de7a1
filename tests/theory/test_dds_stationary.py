"""The long-run distance of a memory from a goal, and the ratios that minimise it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from thalweg.core.errors import ConfigError
from thalweg.theory import dds_ratios_stationary, posterior, stationary_distance

PROBS = np.array([0.5, 0.3, 0.2])
RATIOS = np.array([0.3, 0.8, 0.5])
DEVIATIONS = np.array([[0.5, -0.5], [-0.2, 0.2], [0.1, 0.3]])


def draw_case(rng: np.random.Generator, num_states: int) -> tuple[np.ndarray, np.ndarray]:
    classes = rng.dirichlet(np.full(5, 0.3), num_states)
    return rng.dirichlet(np.ones(num_states)), classes - 1 / 5


def test_distance_is_that_of_a_simulated_memory() -> None:
    rng, x, total = np.random.default_rng(0), np.zeros(2), 0.0
    for state in rng.choice(3, 40_000, p=PROBS).tolist():
        x = (1 - RATIOS[state]) * x + RATIOS[state] * DEVIATIONS[state]
        total += float(x @ x)
    expected = stationary_distance(PROBS, RATIOS, DEVIATIONS)
    # Successive ticks are alike for about two ticks: one percent of the mean is two deviations.
    assert total / 40_000 == pytest.approx(expected, rel=0.03)


def test_distance_of_a_memory_that_is_replaced_is_the_mean_of_the_squares() -> None:
    squares = (DEVIATIONS**2).sum(axis=1)
    assert stationary_distance(PROBS, np.ones(3), DEVIATIONS) == pytest.approx(PROBS @ squares)


def test_distance_under_a_posterior_is_the_mean_of_its_numerator() -> None:
    # E[pi_m pi_k] by sampling; the denominator and the budget are those of the mean.
    counts = np.array([4.0, 2.0, 1.0])
    mean, _ = posterior(np.ones(3), counts)
    rho = 1 / (1 + 3 + counts.sum())
    budget = float(mean @ RATIOS)
    sampled = np.random.default_rng(0).dirichlet(1 + counts, 200_000)
    y, z = (sampled * RATIOS) @ DEVIATIONS, (sampled * RATIOS**2) @ DEVIATIONS
    squares = (DEVIATIONS**2).sum(axis=1)
    numerator = sampled @ (RATIOS**2 * squares) + 2 / budget * ((y - z) * y).sum(axis=1)
    expected = numerator.mean() / float(mean @ (RATIOS * (2 - RATIOS)))
    found = stationary_distance(mean, RATIOS, DEVIATIONS, spread=rho)
    assert found == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("budget", [0.2, 0.5, 0.8])
def test_ratios_are_the_best_of_a_grid(budget: float) -> None:
    rng = np.random.default_rng(round(10 * budget))
    for _ in range(5):
        pi, g = draw_case(rng, 3)
        best = dds_ratios_stationary(pi, g, budget)
        assert pi @ best == pytest.approx(budget)
        lowest = stationary_distance(pi, best, g)
        for first, second in product(np.linspace(0, 1, 21), repeat=2):
            third = (budget - pi[0] * first - pi[1] * second) / pi[2]
            if 0 <= third <= 1:
                other = stationary_distance(pi, [first, second, third], g)
                assert lowest <= other + 1e-9


def test_ratios_are_never_worse_than_equal_ones() -> None:
    rng = np.random.default_rng(1)
    for num_states, spread in product((2, 5, 60), (0.0, 0.04, 1.0)):
        pi, g = draw_case(rng, num_states)
        best = dds_ratios_stationary(pi, g, 0.5, spread)
        equal = np.full(num_states, 0.5)
        assert ((best >= 0) & (best <= 1)).all()
        assert stationary_distance(pi, best, g, spread) <= stationary_distance(pi, equal, g, spread)


@pytest.mark.parametrize("deviations", [np.zeros((3, 2)), np.ones((3, 2))])
def test_states_with_equal_signatures_get_the_budget(deviations: np.ndarray) -> None:
    assert dds_ratios_stationary(PROBS, deviations, 0.3) == pytest.approx([0.3] * 3, abs=1e-6)


def test_states_of_opposite_signatures_get_equal_ratios_if_they_are_equally_likely() -> None:
    ratios = dds_ratios_stationary([0.5, 0.5], [[1.0], [-1.0]], 0.4)
    assert ratios.tolist() == pytest.approx([0.4, 0.4])


def test_a_rare_opposite_state_gets_a_larger_ratio() -> None:
    common, rare = dds_ratios_stationary([0.8, 0.2], [[1.0], [-1.0]], 0.5)
    assert rare > common


def test_an_impossible_state_has_the_ratio_of_a_very_rare_one() -> None:
    rng = np.random.default_rng(2)
    for num_states in (2, 3, 5):
        pi, g = draw_case(rng, num_states + 1)
        pi[-1] = 0.0
        impossible = dds_ratios_stationary(pi / pi.sum(), g, 0.5)
        pi[-1] = 1e-7
        rare = dds_ratios_stationary(pi / pi.sum(), g, 0.5)
        assert impossible == pytest.approx(rare, abs=1e-3)


def test_a_full_budget_renews_everything() -> None:
    assert dds_ratios_stationary([0.7, 0.3, 0.0], DEVIATIONS, 1.0).tolist() == [1.0] * 3


@pytest.mark.parametrize("budget", [1e-6, 1e-3, 0.999999])
def test_extreme_budgets_are_spent(budget: float) -> None:
    assert PROBS @ dds_ratios_stationary(PROBS, DEVIATIONS, budget) == pytest.approx(budget)


def test_a_tiny_budget_gives_ratios_between_zero_and_one() -> None:
    ratios = dds_ratios_stationary(PROBS, DEVIATIONS, 1e-300)
    assert ((ratios >= 0) & (ratios <= 1)).all()


def test_a_client_in_one_unknown_state_cannot_balance_states() -> None:
    # Half of the memory is renewed: with a spread of 1 its mean is 1 or -1 for all time, and the
    # distance 1; if both states occur, the mean is 0 and the distance that of the variance.
    pi, g = [0.5, 0.5], [[1.0], [-1.0]]
    assert stationary_distance(pi, [0.5, 0.5], g, spread=1.0) == pytest.approx(1.0)
    assert stationary_distance(pi, [0.5, 0.5], g) == pytest.approx(0.25 / 0.75)


@pytest.mark.parametrize(
    ("deviations", "spread", "message"),
    [
        ([[1.0], [0.0]], 0.0, "one row for each of 3 states"),
        ([1.0, 0.0, 0.0], 0.0, "one row for each of 3 states"),
        ([[1.0], [0.0], [np.nan]], 0.0, "finite"),
        (DEVIATIONS, -0.1, "spread must lie between 0 and 1"),
        (DEVIATIONS, 1.1, "spread must lie between 0 and 1"),
    ],
)
def test_invalid_arguments_are_rejected(deviations: object, spread: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        dds_ratios_stationary(PROBS, deviations, 0.5, spread)  # type: ignore[arg-type]


def test_a_memory_that_never_changes_has_no_long_run_distance() -> None:
    with pytest.raises(ConfigError, match="expected a positive ratio"):
        stationary_distance(PROBS, np.zeros(3), DEVIATIONS)
