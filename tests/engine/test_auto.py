"""Runs of auto in which all of its policies take decisions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import thalweg
from contracts.runs import (
    Interruption,
    check_engines_agree,
    check_same_bits,
    interrupt_after,
)
from engine.recipe_runs import PlanRuns, active_auto_plan
from thalweg.data import Dataset
from thalweg.engine.loop import run_plan

FEWER = ("world.availability=0.6", "selection.participation=0.7")


@pytest.fixture(scope="module", params=[(), FEWER])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PlanRuns:
    return PlanRuns(active_auto_plan(*request.param), tmp_path_factory.mktemp("auto"))


def test_all_kinds_of_decisions_occur() -> None:
    rows = run_plan(active_auto_plan()).metrics
    decided = {decision["what"] for row in rows for decision in row.get("decisions", ())}
    assert decided == {"open-session", "choose-start", "open-model", "restart-average"}
    assert any(row.get("alarms") for row in rows)


def test_the_fast_engine_agrees_with_the_reference(runs: PlanRuns) -> None:
    check_engines_agree(runs.fast, runs.reference.result)


def test_the_fast_engine_takes_the_same_decisions_without_c(runs: PlanRuns) -> None:
    stacked = run_plan(replace(runs.plan, engine="torch"))
    check_engines_agree(stacked, runs.reference.result)
    for ours, native, theirs in zip(
        stacked.metrics, runs.fast.metrics, runs.reference.result.metrics, strict=True
    ):
        assert ours.get("alarms") == native.get("alarms") == theirs.get("alarms")
        assert [[d["what"] for d in row.get("decisions", ())] for row in (ours, native)] == [
            [d["what"] for d in theirs.get("decisions", ())]
        ] * 2


def test_a_resumed_run_has_the_same_bits(runs: PlanRuns) -> None:
    check_same_bits(runs.fast, runs.resumed)


def test_clients_reached_by_bytes_give_the_same_bits(runs: PlanRuns) -> None:
    runs.check_bytes_equal_reference()


def test_the_number_of_workers_changes_no_bit() -> None:
    plan = replace(active_auto_plan(), engine="fast")
    one, two = (run_plan(plan, workers=workers) for workers in (1, 2))
    assert np.array_equal(one.model, two.model)
    assert one.final["prequential_accuracy"] == two.final["prequential_accuracy"]


@pytest.mark.parametrize("stop", [5, 7])
def test_an_interruption_after_a_decision_changes_no_bit(stop: int, tmp_path: Path) -> None:
    """In round 5 the start of a session was chosen, in round 7 a model was opened."""
    plan = replace(active_auto_plan(), engine="fast")
    with pytest.raises(Interruption):
        run_plan(plan, out=tmp_path, watch=interrupt_after(stop))
    check_same_bits(run_plan(plan), run_plan(plan, out=tmp_path, resume=True))


def test_auto_uses_no_ground_truth() -> None:
    assert active_auto_plan().recipe.ground_truth == ()


def count_opened(num_classes: int, seed: int, *overrides: str) -> int:
    """Return how many models auto opens on noisy samples whose labels never change."""
    rng = np.random.default_rng(seed)
    labels, centres = rng.integers(0, num_classes, 2400), rng.normal(size=(num_classes, 6))
    x = centres[labels] + 3 * rng.normal(size=(2400, 6))
    data = Dataset.from_arrays(x, labels, client=rng.integers(0, 10, 2400))
    more = ["world.arrivals=20", *overrides]
    run = thalweg.run("auto", data, model="linear", rounds=10, seed=seed, overrides=more, workers=1)
    decided = [each["what"] for row in run.metrics for each in row.get("decisions", ())]
    return decided.count("open-model")


@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_noise_opens_no_model(num_classes: int) -> None:
    """Without the test of significance (level 1), chance alone opens models on these data."""
    assert [count_opened(num_classes, seed) for seed in (0, 1)] == [0, 0]
    assert count_opened(num_classes, 0, "bank.significance=1.0") > 0
