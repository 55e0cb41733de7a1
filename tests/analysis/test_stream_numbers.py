"""Tests of the data-streams theory with the weights and gradients of a run."""

import numpy as np
import pytest

import thalweg
from thalweg.analysis.stream_numbers import stream_numbers
from thalweg.core.errors import ConfigError
from thalweg.engine.plan import make_plan

SMALL = ["rounds=4", "world.samples=110"]


def compute_numbers(recipe, *overrides, scenario="streams-synthetic", **options):
    plan = make_plan(recipe, scenario, seed=1, overrides=[*SMALL, *overrides])
    return stream_numbers(plan, **options)


def test_historical_data_in_full_memories_have_zero_gradient_variability():
    found = compute_numbers("stream-historical")
    assert found.historical_mass == pytest.approx(1)
    assert found.gradient_variability == pytest.approx(0, abs=1e-10)
    assert found.num_samples == 22, "a fifth of 110"


def test_fresh_data_have_positive_gradient_variability():
    found = compute_numbers("stream-fresh")
    assert found.historical_mass == 0
    assert found.gradient_variability > 1e-4
    assert found.num_samples == 88


def test_uniform_weights_maximise_effective_samples():
    uniform, lopsided = (
        compute_numbers("stream-uniform"),
        compute_numbers("stream-ours", "sample_weights.strategy=mass", "sample_weights.mass=0.9"),
    )
    assert uniform.effective_samples == pytest.approx(110, rel=0.02)
    assert lopsided.effective_samples < uniform.effective_samples
    assert lopsided.historical_mass == pytest.approx(0.9, abs=0.01)


def test_stream_numbers_replay_a_run_folder_without_changing_it(tmp_path):
    out = tmp_path / "run"
    thalweg.run("stream-ours", "streams-synthetic", seed=1, overrides=SMALL, out=out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    found = stream_numbers(out, rounds=2)
    assert found.rounds == 2
    assert np.isfinite(found.gradient_variability)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def test_unsupported_weights_are_rejected():
    with pytest.raises(ConfigError, match=r"\(weights=by-weight\); this run has weights=equal"):
        compute_numbers("stream-ours", "weights=equal")


def test_watch_callback_is_called_for_every_replayed_and_measured_round():
    progress = []
    compute_numbers("stream-ours", watch=lambda done, steps: progress.append((done, steps)))
    assert progress == [(step, 8) for step in range(8)], "four rounds, twice"
