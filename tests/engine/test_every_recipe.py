"""Every published recipe, and combinations of them, as a small run.

The engines agree, resumed runs have the same bits, and so have runs whose clients are reached by
bytes. The runs of one recipe are shared by the tests, which pytest orders by recipe.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import thalweg
from contracts.runs import check_engines_agree, check_same_bits
from contracts.slow_cases import mark_slow_except
from engine.recipe_runs import SMALL, PlanRuns, small_plan
from thalweg.engine import stacked
from thalweg.recipes import RECIPES

COMBINED = [
    "fedprox+sfedpo",
    "fedcurv+sfedpo",
    "fedntd+sfedpo",
    "fedexp+sfedpo",
    "fedewc+flash+drsr",
    "flwf-2t+ode+adaptive-fedavg",
    "feddrift+is+fedcurv",
    "fedomd+feddrift+fedexp",
    "sfedpo+dpcs",
    "feddrift+powd",
    "fedntd+stream-ours+dpcs",
    "fedewc+stream-uniform+flash",
    "scaffold+sfedpo+flash",
    "fedacg+moon+drsr",
    "fedacg+continuous+dpcs",
    "feddrift+moon",
    "fedewc+feddaa",
    "ode+fedrc+fedntd",
]
QUICK = (
    *("fedprox+sfedpo", "fedewc+flash+drsr", "flwf-2t+ode+adaptive-fedavg", "feddrift+is+fedcurv"),
    *("fedntd+stream-ours+dpcs", "scaffold+sfedpo+flash", "fedacg+moon+drsr", "ode+fedrc+fedntd"),
)
NOT_SERVED = {"local-only", "fine-tuned", "centralised"}
SMALL_CNN = ["net=cnn", "net.channels=[4, 4, 4]", "net.hidden=8", "world.num_clients=5"]
CASES = {
    "balanced memories, label-balanced weights and an average that restarts": (
        "fedavg",
        [
            *("memory=balanced", "weights=label-balanced", "weights.target=pooled"),
            *("server=averaged", "server.rule=fedavgm", "alarm=page-hinkley"),
            *("alarm.threshold=0.01", "alarm.min_values=1", "alarm.slack=0"),
            *("alarm.action=drop-outdated", "alarm.action.margin=0"),
        ],
    ),
    "label-balanced weights with the noisy mixes of a survey": (
        "dpcs",
        ["weights=label-balanced", "weights.source=survey", "selection.privacy.epsilon=1"],
    ),
    "a memory that uses the model, collecting while absent": ("ode", ["world.absent=collecting"]),
    "an objective with state, collecting while absent": ("fedewc", ["world.absent=collecting"]),
    "stationary ratios, and states that forget": (
        "sfedpo",
        [
            "memory=dds-stationary",
            "forecast=growing",
            "forecast.forgetting=true",
            "world.dynamics=regimes",
        ],
    ),
    "states that differ in their images": (
        "sfedpo",
        [
            "memory=dds-stationary",
            "forecast=bayesian",
            "weights.mismatch=kme",
            "world.rotations=[0, 90]",
        ],
    ),
    "weights by arrivals, and an alarm that counts wrong predictions": (
        "fedavg",
        [
            *("memory=balanced", "weights=by-arrivals", "alarm=excess-errors"),
            *("alarm.threshold=1", "alarm.slack=0", "alarm.recovery=0.5"),
            *("alarm.action=drop-outdated", "alarm.action.margin=0"),
        ],
    ),
    "early stopping": ("flash", ["stopping=gain-threshold", "stopping.gain=0.2"]),
    "models that drift": ("feddrift", ["bank.drift_threshold=0.05", "bank.merge_threshold=0.02"]),
    "models at the start and time steps": (
        "feddrift",
        ["bank.initial_models=2", "bank.every=2", "bank.reassign=true", "bank.new_model=random"],
    ),
    "a buffer that fills over several rounds": ("fedbuff", ["server.size=17"]),
    "random models at the start, and a server rule with state": (
        "ifca",
        ["bank.models=3", "server=fedadam", "server.lr=0.001"],
    ),
    "clients that drift together": (
        "feddrift-eager",
        ["bank.drift_threshold=0.01", "bank.max_models=3"],
    ),
    "time steps, and prototypes with gaps": ("feddaa", ["bank.every=2", "bank.missing=mask"]),
    "time steps in which all clients drift": (
        "feddaa",
        ["bank.every=1", "bank.use_daa=false", "bank.missing=impute", "weights.basis=explained"],
    ),
    "a bank that shrinks, collecting while absent": (
        "feddaa",
        [
            "bank.every=2",
            "bank.cluster_count=given",
            "bank.given=[3, 1]",
            "world.absent=collecting",
        ],
    ),
    "responsibilities with early stopping": (
        "fedrc",
        ["stopping=gain-threshold", "stopping.gain=0.2"],
    ),
    "responsibilities and sample_weights": ("fedrc", ["sample_weights=inverse-age"]),
    "a convolutional net, and a memory that uses the model": ("is", SMALL_CNN),
    "a convolutional net, and an objective with state": ("fedewc", SMALL_CNN),
    "dropout": ("sfedpo", ["net=ham-cnn", "net.channels=[4, 4, 4]", "net.hidden=8"]),
    "dropout and a teacher": ("fedntd", ["net=ham-cnn", "net.channels=[4, 4, 4]", "net.hidden=8"]),
    "a decaying learning rate": ("fedavg", ["local.decay=polynomial", "local.decay.rounds=2"]),
    "a decaying learning rate and a learning rate scale": (
        "adaptive-fedavg",
        ["local.decay=polynomial", "local.decay.rounds=3", "local.decay.floor=0.1"],
    ),
    "control variates and a decaying learning rate": (
        "scaffold",
        ["local.decay=polynomial", "local.decay.rounds=3", "local.decay.floor=0.1"],
    ),
    "control variates, collecting while absent": ("scaffold", ["world.absent=collecting"]),
    "features and dropout": ("moon", ["net=ham-cnn", "net.channels=[4, 4, 4]", "net.hidden=8"]),
    "features of a projection head": ("moon", ["net.projection=6"]),
    "states that are discovered": ("sfedpo", ["forecast=growing"]),
    "matching histograms": ("drsr", ["memory.mode=match"]),
    "sample weights that fall with age": (
        "fedavg",
        ["sample_weights=inverse-age", "weights=by-weight"],
    ),
    "weighted samples held out": (
        "flash",
        ["sample_weights=inverse-age", "stopping=gain-threshold", "stopping.gain=0.2"],
    ),
    "labels counted while absent": (
        "dpcs",
        ["world.absent=collecting", "selection.counter=window", "selection.counter.size=30"],
    ),
    "noisy reports": ("dpcs", ["selection.privacy.epsilon=0.5", "selection.draw=systematic"]),
    "candidates evaluate a batch": ("powd", ["selection.form=cpow-d"]),
    "candidates are ranked by their last loss": ("powd", ["selection.form=rpow-d"]),
}


@pytest.fixture(scope="module", params=[*RECIPES, *mark_slow_except(COMBINED, *QUICK)])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PlanRuns:
    return PlanRuns(small_plan(request.param), tmp_path_factory.mktemp("recipe"))


def test_the_fast_engine_agrees_with_the_reference(runs: PlanRuns) -> None:
    check_engines_agree(runs.fast, runs.reference.result)


def test_a_resumed_run_has_the_same_bits(runs: PlanRuns) -> None:
    check_same_bits(runs.fast, runs.resumed)


def test_clients_reached_by_bytes_give_the_same_bits(runs: PlanRuns) -> None:
    if runs.plan.recipe.name in NOT_SERVED:
        pytest.skip("the recipe is rejected on networks")
    runs.check_bytes_equal_reference()


@pytest.mark.parametrize("case", CASES)
def test_special_settings_give_the_same_results_on_both_engines_and_by_bytes(
    case: str, tmp_path: Path
) -> None:
    recipe, overrides = CASES[case]
    runs = PlanRuns(small_plan(recipe, *overrides, rounds=4), tmp_path)
    check_engines_agree(runs.fast, runs.reference.result)
    runs.check_bytes_equal_reference()


@pytest.mark.parametrize(
    "recipe", mark_slow_except(["fedavg", "is", "fedewc", "moon", "fedrc"], "is", "fedrc")
)
def test_models_that_are_not_stacked_agree_with_the_reference(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacked, "stack_size", lambda net: 1)
    runs = PlanRuns(small_plan(recipe, *SMALL_CNN), tmp_path)
    check_engines_agree(runs.fast, runs.reference.result)


WITH_WORKERS = (
    *("flash", "adaptive-fedavg", "fedomd", "fedprox", "fedewc", "flwf-2t", "fedcurv"),
    *("is", "ode", "fedacg", "scaffold", "moon", "fedrc"),
)


@pytest.mark.parametrize("recipe", mark_slow_except(WITH_WORKERS, "fedcurv"))
def test_the_number_of_workers_changes_no_bit(recipe: str) -> None:
    one, two = (
        thalweg.run(recipe, "digits-partial", seed=4, rounds=2, workers=workers, overrides=SMALL)
        for workers in (1, 2)
    )
    assert np.array_equal(one.model, two.model)


def test_dropout_does_not_depend_on_the_workers() -> None:
    overrides = [*SMALL, *CASES["dropout"][1]]
    one, two = (
        thalweg.run("fedavg", "digits-partial", seed=4, rounds=2, workers=w, overrides=overrides)
        for w in (1, 2)
    )
    assert np.array_equal(one.model, two.model)
    still = thalweg.run(
        "fedavg", "digits-partial", seed=4, rounds=2, overrides=[*overrides, "net.dropout=0"]
    )
    assert not np.array_equal(one.model, still.model), "dropout does something"


def test_fedogd_is_fedavg_with_a_memory_that_is_replaced_in_every_round() -> None:
    replaced = thalweg.run(
        "fedavg", "digits-partial", seed=5, rounds=2, overrides=[*SMALL, "memory.budget=1.0"]
    )
    fedogd = thalweg.run("fedogd", "digits-partial", seed=5, rounds=2, overrides=SMALL)
    assert np.array_equal(replaced.model, fedogd.model)


def test_fedomd_with_p_of_2_is_fedogd() -> None:
    two = thalweg.run(
        "fedomd", "digits-partial", seed=5, rounds=2, overrides=[*SMALL, "geometry.p=2.0"]
    )
    fedogd = thalweg.run("fedogd", "digits-partial", seed=5, rounds=2, overrides=SMALL)
    np.testing.assert_allclose(two.model, fedogd.model, rtol=1e-5, atol=1e-7)


def test_feddrift_without_drift_is_fedogd() -> None:
    calm = thalweg.run(
        "feddrift",
        "digits-partial",
        seed=5,
        rounds=2,
        overrides=[*SMALL, "bank.drift_threshold=1000.0"],
    )
    fedogd = thalweg.run("fedogd", "digits-partial", seed=5, rounds=2, overrides=SMALL)
    assert np.array_equal(calm.model, fedogd.model)


def test_all_models_of_a_bank_are_saved(tmp_path: Path) -> None:
    result = thalweg.run(
        "feddrift",
        "digits-partial",
        seed=2,
        rounds=10,
        overrides=["capacity=24", "local.passes=1", *CASES["models that drift"][1]],
        out=tmp_path / "run",
    )
    bank = load_file(tmp_path / "run" / "bank.safetensors")
    assert len(bank["models"]) == result.final["models"] > 1
    assert bank["shares"].sum() == pytest.approx(1.0)
    assert any(np.array_equal(result.model, model) for model in bank["models"])
