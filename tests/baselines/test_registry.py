from __future__ import annotations

import pytest

from thalweg.baselines import BASELINES, LEARNERS, Baseline
from thalweg.core.config import from_dict, to_dict
from thalweg.core.errors import ConfigError
from thalweg.recipes import RECIPES


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_round_trips_under_its_name(name: str) -> None:
    baseline = BASELINES[name]()
    assert baseline.name == name
    assert type(baseline.learner) in LEARNERS.values()
    assert from_dict(Baseline, to_dict(baseline)) == baseline


def test_recipe_and_baseline_names_are_disjoint() -> None:
    assert not BASELINES.keys() & RECIPES.keys()


def test_unknown_feedback_is_rejected() -> None:
    with pytest.raises(ConfigError, match="unknown feedback 'never'"):
        Baseline("mine", BASELINES["majority"]().learner, feedback="never")  # type: ignore[arg-type]
