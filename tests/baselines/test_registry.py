from __future__ import annotations

import pytest

from thalweg.baselines import BASELINES, LEARNERS, Baseline
from thalweg.core.config import from_dict, to_dict
from thalweg.core.errors import ConfigError
from thalweg.recipes import RECIPES


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_is_configuration_under_its_own_name(name: str) -> None:
    baseline = BASELINES[name]()
    assert baseline.name == name
    assert type(baseline.learner) in LEARNERS.values()
    assert from_dict(Baseline, to_dict(baseline)) == baseline


def test_no_recipe_has_the_name_of_a_baseline() -> None:
    assert not BASELINES.keys() & RECIPES.keys()


def test_feedback_is_one_of_two_words() -> None:
    with pytest.raises(ConfigError, match="unknown feedback 'never'"):
        Baseline("mine", BASELINES["majority"]().learner, feedback="never")  # type: ignore[arg-type]
