from __future__ import annotations

import numpy as np
import pytest

from thalweg import theory
from thalweg.analysis import latent_states
from thalweg.core.errors import ConfigError
from thalweg.engine.plan import make_plan


def test_the_numbers_are_those_of_the_world() -> None:
    plan = make_plan("sfedpo", "digits-partial", seed=4)
    numbers = latent_states(plan)
    assert numbers.counts.shape == (24, 10)
    labels = plan.scenario.data.load(None, 4).y
    found = numbers.counts.sum(axis=0).tolist()
    assert found == np.bincount(labels).tolist(), "every sample is in one state"
    assert numbers.clusters.tolist() == [0] * 6 + [1] * 6 + [2] * 6 + [3] * 6
    assert numbers.concentrations.tolist() == [0.05, 0.1, 0.5, 100.0]
    assert numbers.probs.shape == numbers.ratios.shape == (20, 24)
    assert numbers.probs.sum(axis=1) == pytest.approx(np.ones(20))
    assert (np.count_nonzero(numbers.probs, axis=1) <= 3).all()


def test_the_renewal_is_that_of_the_sampling_and_spends_the_budget() -> None:
    numbers = latent_states(make_plan("sfedpo", "digits-full", seed=4))
    expected = theory.dds_ratios(
        numbers.probs[7], np.full(24, 1 / 24), numbers.heterogeneity, 0.5, 0.15, 0.35
    )
    assert numbers.ratios[7] == pytest.approx(expected)
    assert (numbers.probs * numbers.ratios).sum(axis=1) == pytest.approx(np.full(20, 0.5))


def test_uniform_sampling_renews_the_same_share_in_all_states() -> None:
    numbers = latent_states(make_plan("fedavg", "digits-full", seed=4))
    assert (numbers.ratios == 0.5).all()


@pytest.mark.parametrize(
    ("recipe", "scenario", "sets", "said"),
    [
        ("sfedpo", "gaussian-mixture", (), "has no known latent states"),
        ("drsr", "digits-partial", (), "does not predict how much it renews"),
        ("sfedpo", "digits-partial", ("forecast=growing",), "defines states of its own"),
    ],
)
def test_plans_without_known_states_or_predicted_renewal_are_rejected(
    recipe: str, scenario: str, sets: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        latent_states(make_plan(recipe, scenario, overrides=sets))
