"""The memory that minimises the long-run distance from the goal."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from contracts.examples import some_memory_context, some_outlook
from thalweg import theory
from thalweg.core.errors import ConfigError
from thalweg.core.types import Outlook
from thalweg.memory import DdsStationary
from thalweg.memory.dds_stationary import estimate_spread

DEVIATIONS = np.array([[0.5, -0.5], [-0.5, 0.5]])


def outlook_of(probs: list[float], **changes: Any) -> Outlook:
    half = np.full(len(probs), 0.5)
    return Outlook(np.array(probs), half, half, **{"deviations": DEVIATIONS, **changes})


def test_the_renewal_is_that_of_the_theory() -> None:
    outlook = some_outlook()
    assert outlook.deviations is not None
    context = some_memory_context(20, 20, 20, outlook=outlook)
    renewal = DdsStationary(budget=0.4).predict_renewal(None, context)
    expected = theory.dds_ratios_stationary(outlook.probs, outlook.deviations, 0.4)
    assert renewal.tolist() == expected.tolist()
    assert renewal @ outlook.probs == pytest.approx(0.4)


def test_the_renewal_is_limited_by_the_number_of_new_samples() -> None:
    context = some_memory_context(20, 20, 3, outlook=outlook_of([0.8, 0.2]))
    assert DdsStationary().predict_renewal(None, context).tolist() == pytest.approx([0.15] * 2)


def test_each_state_renews_its_share() -> None:
    outlook = outlook_of([0.8, 0.2])
    renewal = DdsStationary().predict_renewal(
        None, some_memory_context(100, 100, 100, outlook=outlook)
    )
    for state in (0, 1):
        context = some_memory_context(100, 100, 100, state=state, outlook=outlook)
        _, kept = DdsStationary().keep(None, context, np.random.default_rng(0))
        assert np.count_nonzero(kept >= 100) == round(100 * renewal[state])


def test_importance_and_heterogeneity_have_no_effect() -> None:
    found = []
    for other in ([0.9, 0.1], [0.1, 0.9]):
        outlook = outlook_of([0.8, 0.2])._replace(
            importance=np.array(other), heterogeneity=np.array(other)
        )
        context = some_memory_context(20, 20, 20, outlook=outlook)
        found.append(DdsStationary().predict_renewal(None, context).tolist())
    assert found[0] == found[1]


def test_the_variance_of_the_forecast_changes_the_renewal() -> None:
    mean, variance = theory.posterior([1, 1], [7, 1])  # 0.8 and 0.2 after ten visits
    contexts = [
        some_memory_context(20, 20, 20, outlook=outlook_of(mean.tolist(), variance=each))
        for each in (None, variance)
    ]
    certain, uncertain = (DdsStationary().predict_renewal(None, each) for each in contexts)
    expected = theory.dds_ratios_stationary(mean, DEVIATIONS, 0.5, spread=1 / 11)
    assert uncertain.tolist() == pytest.approx(expected.tolist())
    assert uncertain.tolist() != pytest.approx(certain.tolist(), abs=1e-3)


@pytest.mark.parametrize(
    ("probs", "variance", "spread"),
    [
        ([0.5, 0.5], None, 0.0),
        ([0.5, 0.5], [0.25, 0.25], 1.0),
        ([0.5, 0.5], [0.05, 0.05], 0.2),
        ([1.0, 0.0], [0.0, 0.0], 0.0),
    ],
)
def test_spread_is_the_variance_relative_to_the_largest(
    probs: list[float], variance: list[float] | None, spread: float
) -> None:
    given = None if variance is None else np.array(variance)
    assert estimate_spread(outlook_of(probs, variance=given)) == pytest.approx(spread)


def test_an_outlook_without_signatures_is_rejected() -> None:
    context = some_memory_context(20, 20, 20, outlook=outlook_of([0.5, 0.5], deviations=None))
    with pytest.raises(ConfigError, match=r"Set Outlook\.deviations, or use memory=dds"):
        DdsStationary().predict_renewal(None, context)


def test_cached_results_share_the_deviations_of_all_clients() -> None:
    """Those of a world with views can have a megabyte."""
    deviations = np.ones((100, 100))
    tracemalloc.start()
    try:
        for probs in np.random.default_rng(0).dirichlet(np.ones(100), 30):
            outlook = outlook_of(probs.tolist(), deviations=deviations.copy())
            DdsStationary().predict_renewal(None, some_memory_context(9, 9, 9, outlook=outlook))
        stored, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert stored < 5 * deviations.nbytes


@pytest.mark.parametrize("budget", [0.0, 1.1, float("nan")])
def test_invalid_budgets_are_rejected(budget: float) -> None:
    with pytest.raises(ConfigError, match="budget"):
        DdsStationary(budget=budget)
