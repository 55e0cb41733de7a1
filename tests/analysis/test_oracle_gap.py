"""Tests of the cost of a run's forecasts, compared with the theory package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from thalweg import theory
from thalweg.analysis.oracle_gap import oracle_gap
from thalweg.core.errors import ConfigError, RunError, ThalwegError
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats
from thalweg.engine.loop import run_plan
from thalweg.engine.plan import Plan, make_plan
from thalweg.forecast import Noisy
from thalweg.streams import Setting
from thalweg.theory import OracleGap

SMALL = ["capacity=16", "local.passes=none", "local.steps=1", "evaluate_every=100"]


def make_gap_plan(*overrides: str, rounds: int = 2, recipe: str = "sfedpo") -> Plan:
    return make_plan(
        recipe, "digits-partial", seed=4, rounds=rounds, overrides=[*SMALL, *overrides]
    )


def expected_gap(predicted: Floats, gram: Floats | None = None) -> OracleGap:
    """Compute the gap from the world alone with the parameters of the recipe."""
    scenario = make_gap_plan().scenario
    data = scenario.data.load(None, 4)
    world = scenario.world.build(
        Setting(data.y, 10, ticks=scenario.ticks, capacity=16, rounds=9, seed=4)
    )
    return theory.oracle_gap(
        np.stack([world.true_state_probs(n) for n in range(20)]),
        predicted,
        np.full(24, 1 / 24),
        theory.divergence_from_uniform(world.state_table.histograms, "kl"),
        0.5,
        world.availability,
        5,
        dds_slope=0.15,
        dds_offset=0.35,
        saw_slope=2.0,
        saw_offset=0.5,
        gram=None
        if gram is None
        else world.state_table.histograms @ world.state_table.histograms.T,
    )


def noisy_probs() -> Floats:
    scenario = make_gap_plan().scenario
    data = scenario.data.load(None, 4)
    world = scenario.world.build(Setting(data.y, 10, ticks=5, capacity=16, rounds=9, seed=4))
    return np.stack(
        [
            Noisy(noise=0.1).init(world.true_state_probs(n), rng_for(4, Draw.FORECAST, 0, n)).probs
            for n in range(20)
        ]
    )


def test_perfect_forecast_has_zero_gap(tmp_path: Path) -> None:
    run_plan(make_gap_plan(), out=tmp_path / "run", workers=1)
    before = sorted(str(file) for file in (tmp_path / "run").rglob("*"))
    found = oracle_gap(tmp_path / "run")
    assert found.gap == 0
    assert found.oracle_error == 0
    assert found.effective_budgets == pytest.approx([0.5] * 20)
    assert sorted(str(file) for file in (tmp_path / "run").rglob("*")) == before, "only looked at"


def test_gap_of_a_noisy_forecast_matches_the_theory(tmp_path: Path) -> None:
    noisy = make_gap_plan("forecast=noisy", "forecast.noise=0.1")
    run_plan(noisy, out=tmp_path / "run", workers=1)
    found, expected = oracle_gap(tmp_path / "run"), expected_gap(noisy_probs())
    assert found.gap > 0
    for ours, theirs in zip(found, expected, strict=True):
        assert np.array_equal(ours, theirs)
    assert oracle_gap(noisy).gap == found.gap, "this oracle never learns: a plan will do"


def test_gap_uses_the_kernel_of_the_weights() -> None:
    found = oracle_gap(
        make_gap_plan("forecast=noisy", "forecast.noise=0.1", "weights.mismatch=kme")
    )
    assert found.ideal == pytest.approx(
        expected_gap(noisy_probs(), gram=np.eye(1)).ideal, abs=1e-12
    )
    assert found.ideal != pytest.approx(expected_gap(noisy_probs()).ideal)


def test_gap_of_a_learning_forecast_decreases(tmp_path: Path) -> None:
    errors, gaps = [], []
    for rounds in (0, 4, 40):
        learning = make_gap_plan(
            "forecast=bayesian",
            "world.availability=1.0",
            "world.availability_spread=0.0",
            "capacity=4",
            rounds=max(rounds, 1),
        )
        if rounds:
            run_plan(learning, out=tmp_path / str(rounds), workers=1)
        found = oracle_gap(tmp_path / str(rounds) if rounds else learning)
        errors.append(found.oracle_error)
        gaps.append(found.gap)
    assert errors[0] > errors[1] > errors[2]
    assert gaps[0] > gaps[1] > gaps[2]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (["memory=uniform-ratio"], "memory=uniform-ratio with weights=shift-aware. Run"),
        (["weights=equal"], "memory=dds with weights=equal. Run"),
        (["memory.exact=true"], "memory.exact"),
        (["weights.exact=true", "weights.noise=0.1"], "weights.exact"),
        (["forecast=growing"], "Growing learns its own states"),
    ],
    ids=str,
)
def test_runs_outside_the_theorem_are_rejected(wrong: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        oracle_gap(make_gap_plan(*wrong))


def test_folder_without_a_run_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run folder"):
        oracle_gap(tmp_path / "nowhere")
    with pytest.raises(ThalwegError, match="no checkpoint"):
        oracle_gap(tmp_path)


def test_clients_without_a_session_are_excluded() -> None:
    quarter = ("sessions=recurring", "sessions.pattern=A", "sessions.groups=4")
    some, all_of_them = oracle_gap(make_gap_plan(*quarter)), oracle_gap(make_gap_plan())
    assert len(some.errors) == 5
    assert len(all_of_them.errors) == 20
