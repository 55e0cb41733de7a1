"""`thalweg.compare`: keyword settings change all recipes or the scenario."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import thalweg
from thalweg.core.errors import ConfigError
from thalweg.engine.plan import Plan, make_plan
from thalweg.memory import Reservoir
from thalweg.report.cells import Cell
from thalweg.report.comparison import Comparison, ComparisonArguments, comparison_jobs, read_cell
from thalweg.report.table import legend

SMALL: dict[str, Any] = {"capacity": 16, "ticks": 2, "world": {"num_clients": 4}}


def make_plans(*recipes: str, overrides: list[str] | None = None, **settings: Any) -> list[Plan]:
    jobs = comparison_jobs(
        recipes,
        "digits-partial",
        ComparisonArguments(seeds=[0], rounds=2, overrides=overrides or [], settings=settings),
        Path("nowhere"),
    )
    plans = [job.plan for job in jobs]
    assert all(isinstance(plan, Plan) for plan in plans)
    return plans  # type: ignore[return-value]


def test_settings_change_each_recipe_and_the_scenario() -> None:
    plans = make_plans("sfedpo", "fedavg", memory=Reservoir(), **SMALL)
    for plan, name in zip(plans, ("sfedpo", "fedavg"), strict=True):
        expected = make_plan(name, "digits-partial", rounds=2, memory=Reservoir(), **SMALL)
        assert plan == expected
        assert plan.recipe.memory == Reservoir()
        assert (plan.scenario.capacity, plan.scenario.world.num_clients) == (16, 4)


def test_changes_of_one_recipe_and_overrides_take_precedence_over_settings() -> None:
    changed, other = make_plans(
        "fedavg,memory=fifo", "fedavg", overrides=["capacity=20"], memory="reservoir", **SMALL
    )
    assert type(changed.recipe.memory).__name__ == "Fifo"
    assert type(other.recipe.memory).__name__ == "Reservoir"
    assert (changed.scenario.capacity, other.scenario.capacity) == (20, 20)


def test_settings_and_overrides_of_a_table_are_combined(tmp_path: Path) -> None:
    """Settings alone do not load the file, which cannot be read without the overrides."""
    file = tmp_path / "rows.csv"
    file.write_text("x,kind\n" + "".join(f"{n},{'ab'[n % 2]}\n" for n in range(40)))
    arguments = ComparisonArguments(
        seeds=[0], overrides=["data.label=kind"], settings={"optimizer": "adam"}
    )
    (job,) = comparison_jobs(["fedavg"], str(file), arguments, Path("nowhere"))
    expected = make_plan("fedavg", str(file), overrides=["data.label=kind"], optimizer="adam")
    assert job.plan == expected


def test_compare_runs_with_its_settings() -> None:
    comparison = thalweg.compare(
        ["fedavg", "fedprox"], "digits-partial", seeds=[5], rounds=2, workers=1, **SMALL
    )
    assert [(cell.recipe, cell.seed, cell.status) for cell in comparison.cells] == [
        ("fedavg", 5, "done"),
        ("fedprox", 5, "done"),
    ]
    alone = thalweg.run("fedavg", "digits-partial", seed=5, rounds=2, workers=1, **SMALL)
    rows = comparison.cells[0].rows
    assert [row["test_loss"] for row in rows if "test_loss" in row] == [
        row["test_loss"] for row in alone.metrics if "test_loss" in row
    ]
    assert max(row["cohort"] for row in rows) <= 4


def test_runs_have_the_names_of_their_clients_and_the_meaning_of_an_alarm(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    lines = [f"{row * 7 % 40},{'ab'[row % 2]},{('north', 'south')[row % 2]}" for row in range(40)]
    file.write_text("\n".join(["x,kind,site", *lines]) + "\n")
    (cell,) = thalweg.compare(
        ["fedavg,alarm=ddm"],
        file,
        seeds=1,
        rounds=1,
        workers=1,
        data={"label": "kind", "client": "site"},
    ).cells
    assert cell.client_names == ("north", "south")
    assert cell.alarm_meaning == "the error on arriving samples has changed (ddm)"


def test_repeated_recipe_is_rejected_with_its_name() -> None:
    with pytest.raises(ConfigError, match=r"Remove fedprox, .* \(fedprox,local.lr=0.01\)"):
        thalweg.compare(["fedavg", "fedprox", "fedprox"], "digits-partial")


def test_unknown_setting_is_rejected_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'capcity'.*'capacity'"):
        thalweg.compare(["fedavg"], "digits-partial", capcity=16)


def test_functions_that_other_processes_cannot_load_are_rejected_before_the_runs() -> None:
    with pytest.raises(ConfigError, match=r"metrics=.*<lambda>: the runs .* a lambda"):
        thalweg.compare(["fedavg"], "digits-partial", seeds=1, metrics=lambda y, predicted: 0.0)
    with pytest.raises(ConfigError, match=r"loss=.*<lambda>: the runs"):
        thalweg.compare(["fedavg"], "digits-partial", seeds=1, loss=lambda outputs, y: outputs)


@pytest.mark.parametrize(
    ("baseline", "override", "num_runs"),
    [
        ("majority", [], 1),
        ("no-change", [], 1),
        ("majority", ["world.availability=0.5"], 3),  # who is present depends on the seed
        ("majority", ["sessions=alternating"], 3),
    ],
)
def test_deterministic_baseline_is_run_once(
    baseline: str, override: list[str], num_runs: int
) -> None:
    arguments = ComparisonArguments(seeds=[4, 5, 6], rounds=2, overrides=override)
    jobs = comparison_jobs([baseline], "elec2", arguments, Path("nowhere"))
    assert [job.plan.seed for job in jobs] == [4, 5, 6][:num_runs]
    assert all(read_cell(job).is_deterministic == (num_runs == 1) for job in jobs)


def test_shared_settings_that_a_baseline_does_not_use_are_left_out_of_its_run() -> None:
    arguments = ComparisonArguments(seeds=[0], overrides=["net=mlp", "ticks=2"], rounds=1)
    on = "gaussian-mixture"
    jobs = comparison_jobs(["fedavg", "majority"], on, arguments, Path("out"))
    commands = [job.command for job in jobs]
    assert commands[0].endswith("--set net=mlp --set ticks=2 --rounds 1")
    assert commands[1].endswith("--seed 0 --set ticks=2 --rounds 1")
    for recipes in (["majority"], ["fedavg", "majority,net=mlp"]):
        with pytest.raises(ConfigError, match=r"no effect on majority: net \(--model\)"):
            comparison_jobs(recipes, on, arguments, Path("out"))
    with pytest.raises(ConfigError, match=r"no effect on majority: net \(--model\)"):
        thalweg.compare(["majority"], on, model="mlp", rounds=1)


def test_deterministic_baseline_is_run_once_on_a_folder_of_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(40.0)[:, None])
    np.save(tmp_path / "y.npy", np.arange(40) % 2)
    arguments = ComparisonArguments(seeds=[4, 5], rounds=2)
    jobs = comparison_jobs(["majority"], str(tmp_path), arguments, Path("nowhere"))
    assert [job.plan.seed for job in jobs] == [4]


def test_baseline_in_a_world_of_random_arrivals_is_run_with_every_seed() -> None:
    arguments = ComparisonArguments(seeds=[0, 1], rounds=2)
    jobs = comparison_jobs(["majority"], "digits-partial", arguments, Path("nowhere"))
    assert len(jobs) == 2


def test_identical_recipes_and_headline_of_a_time_ordered_table(tmp_path: Path) -> None:
    """Without late updates their weights have no effect; rows with times are ranked by
    test-then-train."""
    draws = np.random.default_rng(0).random((60, 3))
    lines = [f"{x},{z},{n},{'ab'[int(y > 0.5)]}" for n, (x, z, y) in enumerate(draws)]
    file = tmp_path / "rows.csv"
    file.write_text("\n".join(["x,z,when,label", *lines]) + "\n")
    comparison = thalweg.compare(
        ["fedavg", "fedavg,staleness=polynomial", "majority"],
        str(file),
        seeds=1,
        workers=1,
        rounds=3,
        overrides=["data.label=label", "data.time=when", "world.num_clients=2"],
    )
    assert [cell.status for cell in comparison.cells] == ["done"] * 3
    found = {each.recipe: each for each in comparison.summary()}
    assert found["fedavg"].main_metric == "prequential_accuracy"
    second = found["fedavg,staleness=polynomial"]
    assert (second.identical_to, second.identical_reason) == ("fedavg", "no late updates")
    assert found["majority"].is_deterministic
    assert found["majority"].accuracy is not None, "the learners ignore the features"
    assert set(found["fedavg"].simple_scores) == {"majority", "no-change"}
    assert "Predicting the majority class" not in legend(list(found.values())), "it is a row"
    assert "Repeating the last label gives" in legend(list(found.values()))


def make_comparison() -> Comparison:
    """Accuracies 0.5, 0.6 and 0.7 against 0.6, 0.8 and 1.0: the differences are 0.1, 0.2, 0.3."""
    values = {"fedavg": (0.5, 0.6, 0.7), "<b>": (0.6, 0.8, 1.0)}
    cells = [
        Cell(
            recipe,
            "digits-full",
            seed,
            "done",
            "",
            [{"round": 1, "accuracy": value / 2}, {"round": 2, "accuracy": value}],
            "thalweg run",
            1.0,
        )
        for recipe, of_seeds in values.items()
        for seed, value in enumerate(of_seeds)
    ]
    return Comparison("digits-full", cells)


def test_comparison_is_a_table_with_paired_tests() -> None:
    comparison = make_comparison()
    second, first = comparison.table().to_pylist()  # from the best to the worst
    assert (first["recipe"], first["metric"], first["seeds"]) == ("fedavg", "accuracy", 3)
    assert first["mean"] == pytest.approx(0.6)
    assert first["difference"] is None
    assert (second["against"], second["difference"]) == ("fedavg", pytest.approx(0.2))
    assert second["p_value"] == pytest.approx(0.0742, abs=1e-4)  # t = 3.4641, 2 degrees of freedom
    assert comparison.tests()["<b>"].p_value == second["p_value"]


def test_comparison_has_short_texts_and_a_figure() -> None:
    comparison = make_comparison()
    expected = "<Comparison on digits-full, accuracy: <b> 0.8000 ± 0.2000, fedavg 0.6000 ± 0.1000>"
    assert repr(comparison) == expected
    assert "<th>&lt;b&gt;</th><td>0.8000 ± 0.2000</td>" in comparison._repr_html_()
    assert len(comparison.plot().axes) >= 1


def test_failing_tracker_does_not_stop_the_processes_of_a_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mlflow.py").write_text("")  # a library without any function
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mlflow", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    comparison = thalweg.compare(
        ["fedavg", "fedogd"],
        "digits-partial",
        seeds=1,
        rounds=1,
        workers=2,
        track="mlflow",
        **SMALL,
    )
    assert [cell.status for cell in comparison.cells] == ["done", "done"]
    assert capfd.readouterr().err.count("tracker MlflowTracker failed in start") == 2


def test_comparison_rejects_a_tracker_object() -> None:
    with pytest.raises(ConfigError, match=r"other processes.*Expected names: tensorboard"):
        thalweg.compare(["fedavg"], "digits-partial", track=[object()])  # type: ignore[list-item]
