"""The growing forecast, which discovers states, in whole runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import thalweg
from thalweg.engine.builders import make_client_pool
from thalweg.engine.loop import Progress, run_plan
from thalweg.engine.plan import make_plan
from thalweg.engine.run_folder import RunFolder

SMALL = ["forecast=growing", "capacity=24", "local.passes=1"]


class Stopped(Exception):
    pass


def test_both_engines_agree_when_states_are_discovered() -> None:
    fast, slow = (
        thalweg.run("sfedpo", "digits-partial", seed=2, rounds=3, engine=engine, overrides=SMALL)
        for engine in ("fast", "reference")
    )
    np.testing.assert_allclose(fast.model, slow.model, rtol=2e-3, atol=2e-5)
    assert [row["cohort"] for row in fast.metrics] == [row["cohort"] for row in slow.metrics]


@pytest.mark.parametrize("variant", [[], ["weights.mismatch=kme", "world.absent=collecting"]])
def test_a_resumed_run_has_the_same_bits(tmp_path: Path, variant: list[str]) -> None:
    plan = make_plan("sfedpo", "digits-partial", seed=3, rounds=4, overrides=[*SMALL, *variant])
    data = plan.scenario.data.load(None, plan.seed)
    whole = run_plan(plan, out=tmp_path / "whole", data=data, workers=1)

    def stop(progress: Progress) -> None:
        if progress.rounds_done == 2:
            raise Stopped

    with pytest.raises(Stopped):
        run_plan(plan, out=tmp_path / "parts", data=data, workers=1, watch=stop)
    run_plan(plan, out=tmp_path / "parts", data=data, workers=1, resume=True)
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts")]
    assert models[0] == models[1]
    client_pool = make_client_pool(plan, data, 0)
    client_pool.restore(RunFolder(tmp_path / "parts").read_checkpoint()[1])
    found = [len(state.forecast.counts) for state in client_pool.states.values()]
    assert max(found) > 1, "more states than a newborn has"
    assert whole.final["round"] == 4


def test_a_world_without_arrivals_at_start_and_end_can_be_run() -> None:
    overrides = ["forecast=growing", "world.at_end=stop", "world.availability=1.0"]
    result = thalweg.run("sfedpo", "gaussian-mixture", seed=1, rounds=3, overrides=overrides)
    assert np.isfinite(result.model).all()
