from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from thalweg.aggregation import (
    Buffered,
    CombinedUpdates,
    FedAcg,
    FedAdam,
    FedAvgM,
    Krum,
    Median,
    NormClip,
)
from thalweg.core.config import with_overrides
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Floats32
from thalweg.engine.plan import make_plan, plan_from_toml, plan_to_toml
from thalweg.federation.server_steps import merge_updates, sum_metrics
from thalweg.memory import Replace
from thalweg.recipes import Recipe, get_recipe

PLAIN = Recipe("plain", Replace())
MODEL = np.array([10, 10], dtype=np.float32)
DELTAS = np.array([[1, 0], [2, 1], [900, -900]], dtype=np.float32)
THIRDS = np.full(3, 1 / 3)


def test_mean_is_used_without_a_robust_rule() -> None:
    merged = merge_updates(PLAIN, None, MODEL, DELTAS, THIRDS)
    assert merged.model.tolist() == pytest.approx([311, -289 - 2 / 3])
    assert merged.extra_metrics == {}


@pytest.mark.parametrize("server", [FedAcg(), FedAdam(), FedAvgM(), Buffered(size=9)])
def test_server_rules_average_buffers(server: Any) -> None:
    recipe, deltas = replace(PLAIN, server=server), np.array([[4, -6], [2, -3]], dtype=np.float32)
    rule, model = server.init(2), MODEL
    for variance in (5.5, 1.0):  # 10 - 4.5, 5.5 - 4.5; with momentum it would be negative
        merged = merge_updates(recipe, rule, model, deltas, np.full(2, 0.5), num_buffers=1)
        rule, model = merged.rule_state, merged.model
        assert model[1] == variance
    assert MODEL.tolist() == [10, 10]
    assert deltas[0, 1] == -6


def test_robust_rule_is_applied_before_the_server_rule() -> None:
    recipe = replace(PLAIN, robust=Median(), server=FedAcg())
    merged = merge_updates(recipe, recipe.server.init(2), MODEL, DELTAS, THIRDS)
    alone = recipe.server.step(
        recipe.server.init(2), MODEL, np.array([[2, 0]], dtype=np.float32), np.ones(1)
    )
    assert merged.model.tolist() == alone[1].tolist()


def test_model_and_server_rule_are_unchanged_without_updates() -> None:
    recipe = replace(PLAIN, robust=Krum(too_few="skip"), server=FedAcg())
    rule = recipe.server.init(2)
    merged = merge_updates(recipe, rule, MODEL, DELTAS, THIRDS)
    assert merged.rule_state is rule
    assert merged.model.tolist() == MODEL.tolist()
    assert merged.extra_metrics == {"too_few": 1}


@dataclass(frozen=True)
class Returns:
    """A robust rule of the user's own, which always gives the same."""

    deltas: Floats32
    weights: Floats

    def combine(self, deltas: Floats32, weights: Floats) -> CombinedUpdates:
        return CombinedUpdates(self.deltas, self.weights)


@pytest.mark.parametrize(
    ("deltas", "weights"),
    [
        (DELTAS[0], THIRDS[:1]),
        (DELTAS[:, :1], THIRDS),
        (DELTAS, THIRDS[:2]),
        (DELTAS.astype(np.float64), THIRDS),
        (np.full_like(DELTAS, np.inf), THIRDS),
        (DELTAS, -THIRDS),
        (DELTAS, THIRDS * np.nan),
    ],
)
def test_invalid_result_of_a_custom_rule_is_rejected(deltas: Floats32, weights: Floats) -> None:
    recipe = replace(PLAIN, robust=Returns(deltas, weights))
    with pytest.raises(
        ConfigError, match=r"Returns\.combine must return finite float32 updates of 2 numb"
    ):
        merge_updates(recipe, None, MODEL, DELTAS, THIRDS)


def test_metrics_of_several_models_are_added_up() -> None:
    assert sum_metrics([{"left_out": 2.0}, {"left_out": 1.0, "too_few": 1.0}]) == {
        "left_out": 3.0,
        "too_few": 1.0,
    }


def test_robust_rule_can_be_set_on_any_recipe_and_written_to_a_file() -> None:
    recipe = with_overrides(get_recipe("fedprox+sfedpo"), ["robust=norm-clip", "robust.factor=2"])
    assert recipe.robust == NormClip(factor=2.0)
    plan = make_plan(recipe, "digits-partial", overrides=["robust=krum", "robust.hostile=0.1"])
    assert plan.recipe.robust == Krum(hostile=0.1)
    assert plan_from_toml(plan_to_toml(plan), "here").recipe == plan.recipe


@pytest.mark.parametrize("share", [1 / 6, 0.5, 0.999])  # of the weight that the client claims
def test_one_huge_update_moves_the_clipped_model_by_at_most_the_median_norm(share: float) -> None:
    rng = np.random.default_rng(0)
    honest = rng.normal(size=(5, 4)).astype(np.float32)
    model = np.zeros(4, dtype=np.float32)
    recipe = replace(PLAIN, robust=NormClip())
    weights = np.array([(1 - share) / 5] * 5 + [share])

    def merge(last: Floats32) -> Floats32:
        return merge_updates(recipe, None, model, np.vstack([honest, last]), weights).model

    median = float(np.sort(np.linalg.norm(honest, axis=1))[2])
    moved = merge(np.full((1, 4), 1e6, dtype=np.float32)) - merge(np.full((1, 4), 1e-6, np.float32))
    assert np.linalg.norm(merge(np.full((1, 4), 1e6, dtype=np.float32))) <= median * 1.001
    assert np.linalg.norm(moved) <= 2 * median
