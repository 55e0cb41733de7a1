"""Every published recipe, and combinations of them: both engines agree, and interruptions leave no trace."""

from pathlib import Path

import numpy as np
import pytest

import thalweg
from contracts.runs import Interruption, check_engines_agree, check_same_bits, interrupt_after
from contracts.slow_cases import mark_slow_except
from thalweg.recipes import RECIPES

SMALL = ["capacity=24", "local.passes=1", "ticks=3", "world.num_clients=8", "evaluate_every=1"]
# Recipes about stored data need a world that has some.
STORED = ["world.samples=110", "ticks=2", "evaluate_every=1"]


def world_for(recipe):
    return ("streams-synthetic", STORED) if "stream-" in recipe else ("digits-partial", SMALL)


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
ODD = {
    "a memory that looks, collecting while away": ("ode", ["world.absent=collecting"]),
    "an objective that remembers, collecting while away": ("fedewc", ["world.absent=collecting"]),
    "early stopping": ("flash", ["stopping=gain-threshold", "stopping.gain=0.2"]),
    "drifting models": ("feddrift", ["bank.drift_threshold=0.05", "bank.merge_threshold=0.02"]),
    "models at the start and time steps": (
        "feddrift",
        ["bank.initial_models=2", "bank.every=2", "bank.reassign=true", "bank.new_model=random"],
    ),
    "drifting together": ("feddrift-eager", ["bank.drift_threshold=0.01", "bank.max_models=3"]),
    "time steps, and prototypes with gaps": ("feddaa", ["bank.every=2", "bank.missing=mask"]),
    "time steps in which everybody is drifted": (
        "feddaa",
        ["bank.every=1", "bank.use_daa=false", "bank.missing=impute", "weights.basis=explained"],
    ),
    "a bank that shrinks, collecting while away": (
        "feddaa",
        [
            "bank.every=2",
            "bank.cluster_count=given",
            "bank.given=[3, 1]",
            "world.absent=collecting",
        ],
    ),
    "responsibility by a net that is not stacked": ("fedrc", ["net=cnn", "world.num_clients=5"]),
    "responsibility with early stopping": (
        "fedrc",
        ["stopping=gain-threshold", "stopping.gain=0.2"],
    ),
    "responsibility and sample_weights": ("fedrc", ["sample_weights=inverse-age"]),
    "a convolutional net that looks": ("is", ["net=cnn", "world.num_clients=5"]),
    "a convolutional net that remembers": ("fedewc", ["net=cnn", "world.num_clients=5"]),
    "dropout": ("sfedpo", ["net=ham-cnn", "net.channels=[4, 4, 4]", "net.hidden=8"]),
    "dropout and a teacher": ("fedntd", ["net=ham-cnn", "net.channels=[4, 4, 4]", "net.hidden=8"]),
    "a decaying learning rate": ("fedavg", ["local.decay=polynomial", "local.decay.rounds=2"]),
    "a decaying learning rate and a pace": (
        "adaptive-fedavg",
        ["local.decay=polynomial", "local.decay.rounds=3", "local.decay.floor=0.1"],
    ),
    "variates and a decaying learning rate": (
        "scaffold",
        ["local.decay=polynomial", "local.decay.rounds=3", "local.decay.floor=0.1"],
    ),
    "variates, collecting while away": ("scaffold", ["world.absent=collecting"]),
    "features and dropout": ("moon", ["net=ham-cnn", "net.channels=[4, 4, 4]", "net.hidden=8"]),
    "features of a net that is not stacked": ("moon", ["net=cnn", "world.num_clients=5"]),
    "features of a projection head": ("moon", ["net.projection=6"]),
    "states found by itself": ("sfedpo", ["forecast=growing"]),
    "matching histograms": ("drsr", ["memory.mode=match"]),
    "samples that count less with age": (
        "fedavg",
        ["sample_weights=inverse-age", "weights=by-weight"],
    ),
    "weighted samples held out": (
        "flash",
        ["sample_weights=inverse-age", "stopping=gain-threshold", "stopping.gain=0.2"],
    ),
    "labels counted while away": (
        "dpcs",
        ["world.absent=collecting", "selection.counter=window", "selection.counter.size=30"],
    ),
    "noisy reports": ("dpcs", ["selection.privacy.epsilon=0.5", "selection.draw=systematic"]),
    "candidates try a batch": ("powd", ["selection.form=cpow-d"]),
    "candidates are judged by their last loss": ("powd", ["selection.form=rpow-d"]),
}


def check_on_both_engines(recipe, overrides, rounds=3, scenario="digits-partial"):
    fast, slow = (
        thalweg.run(recipe, scenario, seed=2, rounds=rounds, engine=engine, overrides=overrides)
        for engine in ("fast", "reference")
    )
    check_engines_agree(fast, slow)


@pytest.mark.parametrize("recipe", [*RECIPES, *COMBINED])
def test_fast_equals_reference(recipe):
    scenario, overrides = world_for(recipe)
    check_on_both_engines(recipe, overrides, scenario=scenario)


@pytest.mark.parametrize("case", ODD)
def test_fast_equals_reference_in_odd_cases(case):
    recipe, overrides = ODD[case]
    check_on_both_engines(recipe, [*SMALL, *overrides], rounds=4)


@pytest.mark.parametrize("recipe", [*RECIPES, *COMBINED])
def test_an_interrupted_run_ends_with_the_same_bits(recipe, tmp_path: Path):
    scenario, overrides = world_for(recipe)

    def run(out, **options):
        return thalweg.run(
            recipe, scenario, seed=3, rounds=4, overrides=overrides, out=out, **options
        )

    whole = run(tmp_path / "whole")
    with pytest.raises(Interruption):
        run(tmp_path / "cut", watch=interrupt_after(2))
    resumed = run(tmp_path / "cut", resume=True)
    check_same_bits(whole, resumed)


WORKED_ON = (
    *("flash", "adaptive-fedavg", "fedomd", "fedprox", "fedewc", "flwf-2t", "fedcurv"),
    *("is", "ode", "fedacg", "scaffold", "moon", "fedrc"),
)


@pytest.mark.parametrize(
    "recipe", mark_slow_except(WORKED_ON, "fedcurv", "is", "scaffold", "fedrc")
)
def test_the_number_of_workers_changes_no_bit(recipe):
    one, two = (
        thalweg.run(recipe, "digits-partial", seed=4, rounds=2, workers=workers, overrides=SMALL)
        for workers in (1, 2)
    )
    assert np.array_equal(one.model, two.model)


def test_dropout_does_not_depend_on_the_workers():
    overrides = [*SMALL, *ODD["dropout"][1]]
    one, two = (
        thalweg.run("fedavg", "digits-partial", seed=4, rounds=2, workers=w, overrides=overrides)
        for w in (1, 2)
    )
    assert np.array_equal(one.model, two.model)
    still = thalweg.run(
        "fedavg", "digits-partial", seed=4, rounds=2, overrides=[*overrides, "net.dropout=0"]
    )
    assert not np.array_equal(one.model, still.model), "dropout does something"


def test_fedogd_is_fedavg_with_a_memory_that_is_replaced_whole():
    replaced = thalweg.run(
        "fedavg", "digits-partial", seed=5, rounds=2, overrides=[*SMALL, "memory.budget=1.0"]
    )
    fedogd = thalweg.run("fedogd", "digits-partial", seed=5, rounds=2, overrides=SMALL)
    assert np.array_equal(replaced.model, fedogd.model)


def test_fedomd_with_two_is_fedogd():
    two = thalweg.run(
        "fedomd", "digits-partial", seed=5, rounds=2, overrides=[*SMALL, "geometry.p=2.0"]
    )
    fedogd = thalweg.run("fedogd", "digits-partial", seed=5, rounds=2, overrides=SMALL)
    np.testing.assert_allclose(two.model, fedogd.model, rtol=1e-5, atol=1e-7)


def test_feddrift_that_never_drifts_is_fedogd():
    calm = thalweg.run(
        "feddrift",
        "digits-partial",
        seed=5,
        rounds=2,
        overrides=[*SMALL, "bank.drift_threshold=1000.0"],
    )
    fedogd = thalweg.run("fedogd", "digits-partial", seed=5, rounds=2, overrides=SMALL)
    assert np.array_equal(calm.model, fedogd.model)


def test_a_bank_of_several_models_is_kept_whole(tmp_path: Path):
    result = thalweg.run(
        "feddrift",
        "digits-partial",
        seed=2,
        rounds=10,
        overrides=["capacity=24", "local.passes=1", *ODD["drifting models"][1]],
        out=tmp_path / "run",
    )
    from safetensors.numpy import load_file

    bank = load_file(tmp_path / "run" / "bank.safetensors")
    assert len(bank["models"]) == result.final["models"] > 1
    assert bank["shares"].sum() == pytest.approx(1.0)
    assert any(np.array_equal(result.model, model) for model in bank["models"])
