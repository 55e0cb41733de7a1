"""Commands that are printed for the user work as printed: they give the same plan."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from thalweg.cli import compare, main, run
from thalweg.engine.plan import AnyPlan
from thalweg.report.comparison import ComparisonArguments, comparison_jobs

OPTIONS = [
    *["--on", "digits-partial", "--rounds", "2", "--engine", "reference", "--data-dir", "my data"],
    *["--set", "capacity=30", "--set", "world.num_clients=4", "--metric", "f1"],
    *["--metric", "log_loss", "--optimizer", "adam", "--set", "local.optimizer.betas=0.9,0.99"],
]


def parse_run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[AnyPlan, str, Path]:
    """Return the plan, the command and the data folder of ``thalweg run``."""
    found: list[Any] = []

    def stop(recipe: str, **options: Any) -> None:
        plan, _, command = run.plan_from_options(
            recipe,
            options["on"],
            options["sets"],
            options["seed"],
            options["rounds"],
            options["engine"],
            data_dir=options["data_dir"],
        )
        found.extend([plan, command, options["data_dir"]])

    monkeypatch.setattr(run, "run_command", stop)
    main.app(words, standalone_mode=False)
    plan, command, data_dir = found
    return plan, command, data_dir


def parse_compare(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], str, ComparisonArguments]:
    """Return the recipes, the scenario and the arguments of ``thalweg compare``."""
    found: list[Any] = []

    def stop(recipes: list[str], on: str, arguments: ComparisonArguments, as_json: bool) -> None:
        found.extend([recipes, on, arguments])

    monkeypatch.setattr(compare, "compare_command", stop)
    main.app(words, standalone_mode=False)
    recipes, on, arguments = found
    return recipes, on, arguments


def test_repeat_command_of_a_run_gives_the_same_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["run", "fedavg", "--seed", "5", *OPTIONS]
    plan, command, data_dir = parse_run(words, monkeypatch)
    program, *again = shlex.split(command)
    assert program == "thalweg"
    assert parse_run(again, monkeypatch) == (plan, command, data_dir)
    assert data_dir == Path("my data")
    assert plan.scenario.metrics == ("f1", "log_loss")


def test_commands_of_a_comparison_give_the_same_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["compare", "fedavg,memory=fifo", "moon", "--seeds", "4,", "--out", "c", *OPTIONS]
    recipes, on, arguments = parse_compare(words, monkeypatch)
    jobs = comparison_jobs(recipes, on, arguments, Path("nowhere"))
    for job in jobs:
        plan, _, data_dir = parse_run(shlex.split(job.command)[1:], monkeypatch)
        assert (plan, data_dir) == (job.plan, Path("my data"))
    single, variant = compare.next_steps(jobs, on, arguments)
    plan, _, _ = parse_run(shlex.split(single)[1:], monkeypatch)
    assert (plan.seed, plan.scenario) == (7, jobs[0].plan.scenario)
    *where, again = parse_compare(shlex.split(variant)[1:], monkeypatch)
    first, second = comparison_jobs(*where, again, Path("nowhere"))
    assert first.plan.scenario == jobs[0].plan.scenario
    assert second.plan.local.lr == first.plan.local.lr / 2
    assert (again.seeds, again.out, again.data_dir) == ([4], Path("c"), Path("my data"))
