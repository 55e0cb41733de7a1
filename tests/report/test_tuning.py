"""Successive halving: rungs, scores, resuming, messages, and the command of the best settings."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import thalweg
from thalweg.core.errors import ConfigError, RunError
from thalweg.core.remedies import messages_for
from thalweg.data import Digits
from thalweg.engine.cells import CellEvent, CellJob
from thalweg.engine.plan import make_any_plan, plan_to_toml
from thalweg.report.comparison import ComparisonArguments
from thalweg.report.tuning import Search, choose_score, make_search, plan_rungs, tune

SMALL = ["capacity=16", "ticks=1", "world.num_clients=3", "world.availability=1", "local.passes=1"]


def search_for(over: Mapping[str, Any], folder: Path = Path("nowhere"), **options: Any) -> Search:
    given: dict[str, Any] = {"seeds": [0], "rounds": 4, "overrides": SMALL}
    arguments = ComparisonArguments(**given | options)
    return make_search("fedavg", "digits-partial", over, arguments, folder)


@given(st.integers(2, 200), st.integers(1, 500))
def test_rungs_halve_configurations_and_end_with_all_rounds(count: int, rounds: int) -> None:
    rungs = plan_rungs(count, rounds)
    assert rungs[0][0] == count
    assert rungs[-1][1] == rounds
    for (many, short), (few, long) in pairwise(rungs):
        assert many > few >= 1
        assert short < long


def test_rungs_of_nine_configurations() -> None:
    assert plan_rungs(9, 90) == [(9, 10), (3, 30), (1, 90)]
    assert plan_rungs(2, 40) == [(2, 14), (1, 40)]


@pytest.fixture
def scores(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, int], float | None]:
    """Scores by configuration and rounds, in place of run folders; None: the run diverged."""
    table: dict[tuple[str, int], float | None] = {}

    def read(job: CellJob, failure: str | None = None) -> Any:
        from thalweg.report.cells import Cell

        rounds = job.plan.scenario.rounds
        score = table[job.recipe, rounds]
        row = {"round": rounds, "validation_accuracy": score, "accuracy": 1 - (score or 0)}
        status, reason = (
            ("failed", "the loss is not a finite number.") if score is None else ("done", "")
        )
        return Cell(job.recipe, "s", job.plan.seed, status, reason, [row], "", 0.0)  # type: ignore[arg-type]

    monkeypatch.setattr("thalweg.report.tuning.read_cell", read)
    return table


def test_best_third_continues_and_the_order_is_by_rung_and_score(
    scores: dict[tuple[str, int], float | None],
) -> None:
    rates = ["0.1", "0.2", "0.3", "0.4"]
    search = search_for({"local.lr": rates}, rounds=9)
    assert search.rungs == [(4, 1), (2, 3), (1, 9)]
    first = dict(zip(rates, [0.5, 0.9, None, 0.8], strict=True))
    scores |= {(f"local.lr={rate}", 1): score for rate, score in first.items()}
    scores |= {("local.lr=0.2", 3): 0.6, ("local.lr=0.4", 3): 0.7, ("local.lr=0.4", 9): 0.75}
    ran: list[list[tuple[str, int]]] = []

    def run_jobs(rung: int, jobs: Sequence[CellJob]) -> dict[Path, str]:
        assert rung == len(ran) + 1
        ran.append([(job.recipe, job.plan.scenario.rounds) for job in jobs])
        return {}

    tuning = search.run(run_jobs)
    assert [len(jobs) for jobs in ran] == [4, 2, 1]
    assert [(trial.settings["local.lr"], trial.rung, trial.rounds) for trial in tuning.trials] == [
        ("0.4", 3, 9),
        ("0.2", 2, 3),
        ("0.1", 1, 1),
        ("0.3", 1, 1),
    ]
    assert tuning.best == {"local.lr": "0.4"}
    assert tuning.trials[-1].score is None
    assert tuning.trials[-1].reason == "seed 0: the loss is not a finite number."
    assert tuning.rows()[0] == ("local.lr=0.4", "9", "75.00", "best")
    assert tuning.rows()[1] == ("local.lr=0.2", "3", "60.00", "rung 2 of 3")
    assert tuning.rows()[3] == ("local.lr=0.3", "1", "–", "diverged in rung 1")
    assert repr(tuning) == (
        "Tuning(fedavg on digits-partial: best of 4 is local.lr=0.4, validation accuracy 75.00)"
    )
    columns = tuning.table().to_pydict()
    assert columns["validation_accuracy_mean"] == [0.75, 0.6, 0.5, None]
    assert columns["local.lr"] == ["0.4", "0.2", "0.1", "0.3"]


def test_configuration_that_diverges_with_more_rounds_is_not_the_best(
    scores: dict[tuple[str, int], float | None],
) -> None:
    scores |= {("local.lr=1", 3): 0.9, ("local.lr=2", 3): 0.1, ("local.lr=1", 9): None}
    tuning = search_for({"local.lr": [1, 2]}, rounds=9).run(lambda _, jobs: {})
    assert tuning.best == {"local.lr": 2}
    assert [trial.rung for trial in tuning.trials] == [1, 2]


def test_error_if_all_configurations_diverge(scores: dict[tuple[str, int], float | None]) -> None:
    scores |= {("local.lr=1", 3): None, ("local.lr=2", 3): None}
    with pytest.raises(RunError, match=r"at least one.*all 2 diverged.*seed 0: the loss is not"):
        search_for({"local.lr": [1, 2]}, rounds=9).run(lambda _, jobs: {})


def test_other_failure_stops_the_tuning(tmp_path: Path) -> None:
    # Otherwise a full disk would choose the settings.
    search = search_for({"local.lr": [1, 2]}, folder=tmp_path)
    with pytest.raises(RunError, match=r"=1, seed 0: the disk is full\. Config.*run the same"):
        search.run(lambda _, jobs: {jobs[0].folder: "the disk is full."})


def test_real_divergence_leaves_the_search(tmp_path: Path) -> None:
    over = {"local.lr": [1e30, 0.1]}
    tuning = tune(
        "fedavg", "digits-partial", over=over, seeds=1, rounds=6, overrides=SMALL, workers=1
    )
    assert tuning.best == {"local.lr": 0.1}
    assert "is not a finite number" in tuning.trials[1].reason


def test_score_is_never_a_test_metric() -> None:
    plan = make_any_plan("fedavg", "digits-partial")
    data = Digits().load(None, 0)
    assert choose_score(plan, data) == "validation_accuracy"
    timed = replace(data, time=data.y.astype(float))
    assert choose_score(plan, timed) == "prequential_accuracy"
    untested = replace(data, x_test=data.x_test[:0], y_test=data.y_test[:0])
    assert choose_score(plan, untested) == "prequential_accuracy"
    baseline = make_any_plan("majority", "digits-partial")
    assert choose_score(baseline, data) == "prequential_accuracy"
    by_f1 = make_any_plan("fedavg", "digits-partial", headline="f1")
    with pytest.raises(ConfigError, match=r"headline=f1 has no effect.*validation_accuracy"):
        choose_score(by_f1, data)
    silent = replace(plan, scenario=replace(plan.scenario, prequential=0))
    with pytest.raises(ConfigError, match=r"\(prequential=0\).*\(prequential=32\)"):
        choose_score(silent, timed)
    shown = pytest.raises(ConfigError, match=r"\(prequential=0\).*\(--set prequential=32\)")
    with messages_for("command line"), shown:
        choose_score(silent, timed)


def test_half_of_the_test_samples_is_reserved_unless_the_scenario_reserves_some() -> None:
    over = {"local.lr": [0.1, 0.2]}
    assert search_for(over).jobs(0, 4)[0].plan.scenario.validation == 0.5
    search = search_for(over, overrides=[*SMALL, "validation=0.25"])
    assert search.jobs(0, 4)[0].plan.scenario.validation == 0.25


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({}, "expected fields to choose.*got none"),
        ({"local.lr": []}, "local.lr: expected at least one value, got none; add some"),
        ({"local.lr": [0.1]}, r"at least two configurations, got one: local.lr=0.1\. Add"),
        ({"local.lr": [0.1, 0.1]}, "different values, got 0.1, 0.1"),
        ({"local.lr": ["0.1", "0.10"]}, "local.lr=0.1 and local.lr=0.10 are the same plan"),
        ({"local.lr": 0.1}, r"expected a list of values, got 0.1; write \[0.1, ...\]"),
        ({"local.rl": [0.1, 0.2]}, "unknown field of local 'rl'.*Did you mean 'lr'.*Nothing was"),
        ({"lokal.lr": [0.1, 0.2]}, "unknown setting 'lokal'.*Did you mean 'local'"),
        ({"local.lr": [0.1, "fast"]}, "configuration local.lr=fast: .*expected a number, got text"),
        ({"rounds": [2, 4]}, "rounds belongs to the problem"),
        ({"world.num_clients": [2, 4]}, "world.num_clients belongs to the problem"),
        ({"memory": [object(), "fifo"]}, "expected numbers, texts or lists.*'fifo'"),
    ],
)
def test_invalid_values_are_rejected_before_anything_runs(
    over: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        tune("fedavg", "digits-partial", over=over, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_real_tuning_gives_the_bits_of_plain_runs_and_continues(tmp_path: Path) -> None:
    events: list[CellEvent] = []
    options: dict[str, Any] = {"seeds": [0, 1], "rounds": 3, "overrides": SMALL, "workers": 1}
    over = {"local.lr": [0.0001, 0.1]}
    tuning = tune(
        "fedavg", "digits-partial", over=over, out=tmp_path, watch=events.append, **options
    )
    ended = [event.job.recipe for event in events if event.row is None]
    assert (
        ended == ["local.lr=0.0001"] * 2 + ["local.lr=0.1"] * 2 + [" ".join(tuning.overrides)] * 2
    )
    assert tuning.best == {"local.lr": 0.1}  # the other one has hardly moved
    score = tuning.trials[0].score
    assert score is not None
    assert score.num_seeds == 2
    plain = [
        thalweg.run(
            "fedavg",
            "digits-partial",
            seed=seed,
            rounds=3,
            overrides=[*SMALL, *tuning.overrides, "validation=0.5"],
            workers=1,
        ).final["validation_accuracy"]
        for seed in (0, 1)
    ]
    assert score.mean == pytest.approx(sum(plain) / 2, abs=1e-12)
    # The command is that of the best plan with an unused seed.
    words = shlex.split(tuning.command)
    assert words[:7] == ["thalweg", "run", "fedavg", "--on", "digits-partial", "--seed", "2"]
    assert words[-2:] == ["--rounds", "3"]
    sets = [value for name, value in pairwise(words) if name == "--set"]
    assert sets == [*SMALL, "validation=0.5", *tuning.overrides]
    plan = make_any_plan("fedavg", "digits-partial", seed=2, rounds=3, overrides=sets)
    assert "validation = 0.5" in plan_to_toml(plan)
    # A second call repeats nothing.
    events.clear()
    again = tune(
        "fedavg", "digits-partial", over=over, out=tmp_path, watch=events.append, **options
    )
    assert events == []
    assert again == tuning
