import itertools
from dataclasses import replace

import numpy as np
import pytest

import thalweg
from contracts.runs import Interruption, check_same_bits, interrupt_after
from thalweg.core.errors import ConfigError, DataError, Diverged
from thalweg.engine import loop
from thalweg.engine.loop import run_plan
from thalweg.engine.plan import make_plan


def test_a_run_returns_metrics_as_a_table_and_the_model():
    result = thalweg.run("sfedpo", "digits-partial", seed=7, rounds=5)
    table = result.table()
    assert table.num_rows == 5
    assert {"round", "cohort", "loss", "accuracy", "bytes_up", "seconds"} <= set(table.column_names)
    assert result.model.shape == (result.net.num_params,)
    assert np.isfinite(result.model).all()


def test_the_same_seed_gives_the_same_bits_and_another_seed_others():
    first, again, other = (
        thalweg.run("sfedpo", "digits-partial", seed=seed, rounds=4).model for seed in (7, 7, 8)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_evaluation_happens_every_n_rounds_and_always_in_the_last():
    result = thalweg.run(
        "fedavg", "digits-partial", seed=0, rounds=7, overrides=["evaluate_every=3"]
    )
    assert [row["round"] for row in result.metrics if "accuracy" in row] == [3, 6, 7]


def test_all_recipes_get_the_same_cohorts_and_arrivals():
    cohorts = []
    for recipe in ("sfedpo", "fedavg", "fedogd"):
        result = thalweg.run(
            recipe, "digits-partial", seed=3, rounds=8, overrides=["capacity=24", "local.passes=1"]
        )
        cohorts.append([row["cohort"] for row in result.metrics])
    assert cohorts[0] == cohorts[1] == cohorts[2]


def test_fedavg_with_full_renewal_is_fedogd_bit_for_bit():
    everything_new = thalweg.run(
        "fedavg", "digits-partial", seed=5, rounds=6, overrides=["memory.budget=1.0"]
    )
    fedogd = thalweg.run("fedogd", "digits-partial", seed=5, rounds=6)
    assert np.array_equal(everything_new.model, fedogd.model)


@pytest.mark.parametrize("recipe", ["sfedpo", "fedogd", "drsr"])
def test_a_longer_run_has_the_same_first_rounds(recipe):
    short, long = (
        thalweg.run(recipe, "digits-partial", seed=5, rounds=n, overrides=["evaluate_every=1"])
        for n in (2, 4)
    )
    for row, other in zip(short.metrics, long.metrics[:2], strict=True):
        times = {"seconds": 0, "core_seconds": 0}
        assert {**row, **times} == {**other, **times}


def test_core_seconds_are_those_of_a_round_without_evaluation(monkeypatch):
    clock = itertools.count()

    def evaluate(*args):
        return {"accuracy": next(clock) + next(clock)}

    monkeypatch.setattr(loop.time, "process_time", lambda: next(clock))
    monkeypatch.setattr(loop, "evaluate_round", evaluate)
    result = thalweg.run("fedavg", "digits-partial", rounds=2, overrides=["evaluate_every=1"])
    assert [row["core_seconds"] for row in result.metrics] == [1, 1]


def test_a_round_without_clients_counts_and_leaves_the_model_unchanged():
    result = thalweg.run(
        "sfedpo",
        "digits-partial",
        seed=0,
        rounds=40,
        overrides=["world.num_clients=2", "world.availability=0.1", "evaluate_every=1"],
    )
    assert len(result.metrics) == 40
    quiet = [row["round"] for row in result.metrics if row["cohort"] == 0]
    assert quiet
    accuracy = {row["round"]: row["accuracy"] for row in result.metrics}
    assert all(accuracy[rnd] == accuracy[rnd - 1] for rnd in quiet if rnd > 1)


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_it_resumable(tmp_path):
    plan = make_plan("fedavg", "digits-partial", seed=0, rounds=20, overrides=["local.lr=1e18"])
    with pytest.raises(Diverged, match=r"round \d+: .* client \d+.*smaller learning rate"):
        run_plan(plan, out=tmp_path)
    with pytest.raises(Diverged, match="round"):
        run_plan(plan, out=tmp_path, resume=True)


def test_bytes_follow_from_the_cohort_and_the_size_of_the_model():
    result = thalweg.run("sfedpo", "digits-partial", seed=1, rounds=3)
    for row in result.metrics:
        assert row["bytes_down"] == row["cohort"] * 4 * result.net.num_params
        assert row["bytes_up"] == row["cohort"] * (4 * result.net.num_params + 8)  # and the score


def test_a_client_without_data_does_not_change_the_model():
    result = thalweg.run(
        "fedavg",
        "gaussian-mixture",
        seed=0,
        rounds=3,
        overrides=["world.at_end=stop", "world.availability=1.0"],
    )
    assert all(np.isfinite(row["loss"]) for row in result.metrics)


@pytest.mark.parametrize("options", [{"workers": 0}, {"resume": True}])
def test_invalid_options_are_rejected(options):
    with pytest.raises(ConfigError):
        thalweg.run("fedavg", "digits-full", rounds=1, **options)


def test_prequential_testing_can_be_switched_off():
    result = thalweg.run("fedavg", "digits-full", rounds=2, overrides=["prequential=0"])
    assert all("prequential_accuracy" not in row for row in result.metrics)


def test_a_recipe_made_in_python_runs():
    from thalweg.memory import Reservoir
    from thalweg.recipes import sfedpo

    recipe = replace(sfedpo(), name="mine", memory=Reservoir())
    assert len(thalweg.run(recipe, "digits-partial", rounds=3).metrics) == 3


def test_unknown_data_leave_no_folder_behind(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.csv"):
        thalweg.run("fedavg", "nowhere.csv", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("server", ["step", "fedexp", "adaptive", "flash"])
def test_every_model_of_a_bank_keeps_its_server_rule_when_the_run_is_resumed(server, tmp_path):
    plan = make_plan(
        "feddrift",
        "digits-partial",
        seed=2,
        rounds=5,
        overrides=[
            *("capacity=16", "local.passes=1", "ticks=2", "world.availability=0.6"),
            *("bank.drift_threshold=0.0", "bank.merge_threshold=0.001", f"server={server}"),
        ],
    )
    whole = run_plan(plan, workers=1)
    assert whole.metrics[3]["models"] > 2
    with pytest.raises(Interruption):
        run_plan(plan, workers=1, out=tmp_path, watch=interrupt_after(4))
    check_same_bits(whole, run_plan(plan, workers=1, out=tmp_path, resume=True))
