"""Choose settings of a recipe by successive halving; finished runs are reused.

All configurations run for a few rounds. The best third of them runs for three times as many rounds,
and so on, until one configuration has run for all rounds. A configuration is scored on the
validation part of the test samples, or on arriving samples before training on them. The test metric
is never used.

The runs of each rung start from the first round. They are therefore the same as plain runs with
that number of rounds, bit for bit, also where a schedule depends on the number of rounds.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thalweg.baselines import Baseline
from thalweg.core.errors import NOT_FINITE, ConfigError, RunError, ThalwegError, require
from thalweg.core.metrics import Metric, get_metric
from thalweg.core.remedies import format_setting
from thalweg.data import Dataset
from thalweg.data.checks import warn_about_data
from thalweg.engine.cells import CellCallback, CellJob
from thalweg.engine.plan import AnyPlan, BaselinePlan, plan_to_toml
from thalweg.engine.ray.cluster import choose_cluster
from thalweg.recipes import Recipe
from thalweg.report.comparison import (
    ComparisonArguments,
    check_shared_folder,
    comparison_jobs,
    folder_name,
    make_arguments,
    read_cell,
)
from thalweg.report.numbers import format_metric
from thalweg.report.render import escape_markdown, markdown_row
from thalweg.report.summary import Spread, spread
from thalweg.scenarios import ScenarioLike

if TYPE_CHECKING:
    import pyarrow as pa

ETA = 3  # one of `ETA` configurations continues, with `ETA` times the rounds
VALIDATION = 0.5  # share of the test samples for choosing, if the scenario reserves none
# Fields of the scenario that define the problem or the score: runs with different values cannot be
# compared.
PROBLEM_FIELDS = (
    "data",
    "drift",
    "evaluate_every",
    "evaluate_first",
    "faults",
    "headline",
    "metrics",
    "name",
    "prequential",
    "rounds",
    "sessions",
    "tasks",
    "ticks",
    "validation",
    "world",
)

RunJobs = Callable[[int, Sequence[CellJob]], Mapping[Path, str]]
"""Runs the jobs of a rung, counted from 1; returns the folders that failed, with the reasons."""


@dataclass(frozen=True)
class Trial:
    """One configuration: its settings, its last rung, and its score there."""

    settings: Mapping[str, Any]
    rung: int  # counted from 1
    rounds: int  # of the runs of that rung
    score: Spread | None  # mean and spread over seeds; None: a run diverged
    reason: str = ""  # how it diverged

    @property
    def overrides(self) -> list[str]:
        """The settings as ``part.field=value``, for ``--set`` and `thalweg.run`."""
        return get_overrides(self.settings)


@dataclass(frozen=True, repr=False)
class Tuning:
    """The result of `tune`: all configurations, the best one first."""

    recipe: str
    scenario: str
    metric: str  # the name of the score
    rungs: Sequence[tuple[int, int]]  # configurations and rounds of each rung
    trials: Sequence[Trial]
    command: str  # runs the best configuration with a seed that was not used for choosing

    @property
    def best(self) -> dict[str, Any]:
        """The settings of the best configuration."""
        return dict(self.trials[0].settings)

    @property
    def overrides(self) -> list[str]:
        """The best settings for ``thalweg.run(..., overrides=tuning.overrides)``."""
        return self.trials[0].overrides

    def table(self) -> pa.Table:
        """Return an Arrow table with one row per configuration, the best one first."""
        import pyarrow as pa

        scores = [trial.score for trial in self.trials]
        columns: dict[str, list[Any]] = {
            name: [trial.settings[name] for trial in self.trials] for name in self.best
        }
        columns |= {
            "rung": [trial.rung for trial in self.trials],
            "rounds": [trial.rounds for trial in self.trials],
            f"{self.metric}_mean": [score and score.mean for score in scores],
            f"{self.metric}_std": [score and score.std for score in scores],
            "seeds": [0 if score is None else score.num_seeds for score in scores],
            "reason": [trial.reason for trial in self.trials],
        }
        return pa.table(columns)

    def rows(self) -> list[tuple[str, str, str, str]]:
        """The rows of the printed table: configuration, rounds, score, and where it ended."""
        metric = get_metric(self.metric)
        return [
            (
                " ".join(trial.overrides),
                str(trial.rounds),
                format_metric(metric, trial.score),
                self._describe_end(index, trial),
            )
            for index, trial in enumerate(self.trials)
        ]

    def to_markdown(self) -> str:
        """The printed table in Markdown, with the command of the best configuration."""
        heading = get_score_heading(get_metric(self.metric))
        lines = [
            markdown_row(["configuration", "rounds", heading, "ended"]),
            markdown_row(["---", "---:", "---:", "---"]),
            *(markdown_row([escape_markdown(text) for text in row]) for row in self.rows()),
        ]
        return "\n".join([*lines, "", f"    {self.command}"]) + "\n"

    def _describe_end(self, index: int, trial: Trial) -> str:
        if trial.score is None:
            return f"diverged in rung {trial.rung}"
        return "best" if index == 0 else f"rung {trial.rung} of {len(self.rungs)}"

    def __repr__(self) -> str:
        score = format_metric(get_metric(self.metric), self.trials[0].score)
        return (
            f"Tuning({self.recipe} on {self.scenario}: best of {len(self.trials)} is "
            f"{' '.join(self.overrides)}, {get_score_heading(get_metric(self.metric))} {score})"
        )


def tune(
    recipe: Recipe | Baseline | str,
    scenario: ScenarioLike,
    *,
    over: Mapping[str, Iterable[Any]],
    model: Any = None,
    loss: Any = None,
    metrics: Any = None,
    optimizer: Any = None,
    seeds: int | Iterable[int] = 2,
    rounds: int | None = None,
    overrides: Iterable[str] = (),
    engine: str = "auto",
    address: str | None = None,
    num_gpus: float | None = None,
    workers: int | None = None,
    device: str = "auto",
    out: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    watch: CellCallback | None = None,
    **settings: Any,
) -> Tuning:
    """Choose settings of a recipe by successive halving, and return the configurations in order.

    `over` maps fields to values, such as ``{"local.lr": [0.01, 0.03], "memory": ["fifo", "dds"]}``;
    all combinations are configurations. The other arguments are those of `thalweg.compare`. With
    `out`, finished runs are kept there, and a second call continues.

    The score is the metric on the validation part (`Scenario.validation`, or half of the test
    samples), averaged over the seeds. If the data are ordered in time, clients come and go in
    sessions, or there is no test set, it is the prequential (test-then-train) metric.
    """
    cluster = choose_cluster(engine, address, num_gpus, workers)
    check_shared_folder(cluster, out)
    arguments = make_arguments(
        seeds=seeds,
        rounds=rounds,
        overrides=overrides,
        engine="auto" if cluster else engine,
        workers=cluster or workers,
        device=device,
        out=out,
        data_dir=data_dir,
        model=model,
        settings=settings,
        short_forms={"loss": loss, "metrics": metrics, "optimizer": optimizer},
    )
    with tempfile.TemporaryDirectory(prefix="thalweg-") as scratch:
        search = make_search(recipe, scenario, over, arguments, arguments.out or Path(scratch))
        warn_about_data(search.plan.scenario.data, search.data)
        return search.run(lambda _, jobs: arguments.run(jobs, watch))


@dataclass(frozen=True, eq=False)
class Search:
    """Everything that determines a tuning: configurations, rungs, seeds and the score."""

    recipe: Recipe | Baseline | str
    scenario: ScenarioLike
    arguments: ComparisonArguments
    folder: Path
    configurations: Sequence[Mapping[str, Any]]
    rungs: Sequence[tuple[int, int]]  # configurations and rounds of each rung
    metric: Metric
    plan: AnyPlan  # of the first configuration, with all rounds
    data: Dataset

    def jobs(self, index: int, rounds: int) -> list[CellJob]:
        """The runs of a configuration, one for each seed."""
        settings = self.configurations[index]
        label = get_label(settings)
        folder = self.folder / f"rounds-{rounds}" / folder_name(label)
        arguments = replace(self.arguments, rounds=rounds)
        jobs = _make_jobs(self.recipe, self.scenario, arguments, settings, folder)
        return [replace(job, recipe=label) for job in jobs]

    def run(self, run_jobs: RunJobs) -> Tuning:
        """Run all rungs and return the result; finished runs in the folder are not repeated."""
        trials: dict[int, Trial] = {}
        alive = list(range(len(self.configurations)))
        for rung, (count, rounds) in enumerate(self.rungs, start=1):
            alive = (
                self._rank({index: trials[index] for index in alive})[:count] if trials else alive
            )
            jobs = {index: self.jobs(index, rounds) for index in alive}
            failures = run_jobs(rung, [job for each in jobs.values() for job in each])
            for index in alive:
                trials[index] = self._read_trial(index, rung, rounds, jobs[index], failures)
            alive = [index for index in alive if trials[index].score is not None]
            if not alive:
                break
        order = self._rank(trials)
        if trials[order[0]].score is None:
            raise RunError(
                f"expected a score of at least one configuration, but all {len(order)} diverged. "
                f"The first one, {get_label(trials[order[0]].settings)}: "
                f"{trials[order[0]].reason}"
            )
        best = trials[order[0]]
        arguments = replace(self.arguments, seeds=[max(self.arguments.seeds) + 1])  # not used yet
        job = _make_jobs(self.recipe, self.scenario, arguments, best.settings, self.folder)[0]
        return Tuning(
            recipe=job.recipe,
            scenario=self.plan.scenario.name,
            metric=self.metric.name,
            rungs=self.rungs,
            trials=[trials[index] for index in order],
            command=job.command,
        )

    def _rank(self, trials: Mapping[int, Trial]) -> list[int]:
        """Order configurations: diverged ones last, later rungs first, then by score."""
        sign = 1 if self.metric.better == "lower" else -1

        def get_key(index: int) -> tuple[bool, int, float]:
            score = trials[index].score
            return score is None, -trials[index].rung, sign * score.mean if score else 0.0

        return sorted(trials, key=get_key)  # equal scores: in the given order

    def _read_trial(
        self,
        index: int,
        rung: int,
        rounds: int,
        jobs: Sequence[CellJob],
        failures: Mapping[Path, str],
    ) -> Trial:
        values = []
        for job in jobs:
            cell = read_cell(job, failures.get(job.folder))
            value = self.metric.aggregate(cell.rows) if cell.is_done else None
            if value is None:
                reason = cell.reason or f"no round has the metric {self.metric.name}."
                reason = f"seed {job.plan.seed}: {reason}"
                if NOT_FINITE not in reason:  # nothing is known about the configuration
                    raise RunError(
                        f"{get_label(self.configurations[index])}, {reason} Configurations cannot "
                        "be compared without this run. Remove the cause and run the same command "
                        "again (finished runs in the folder are kept), or leave out the value."
                    )
                return Trial(self.configurations[index], rung, rounds, None, reason)
            values.append(value)
        return Trial(self.configurations[index], rung, rounds, spread(values))


def _make_jobs(
    recipe: Recipe | Baseline | str,
    scenario: ScenarioLike,
    arguments: ComparisonArguments,
    configuration: Mapping[str, Any],
    folder: Path,
) -> list[CellJob]:
    """Return the runs of a configuration, one for each seed."""
    overrides = [*arguments.overrides, *get_overrides(configuration)]
    return comparison_jobs([recipe], scenario, replace(arguments, overrides=overrides), folder)


def make_search(
    recipe: Recipe | Baseline | str,
    scenario: ScenarioLike,
    over: Mapping[str, Iterable[Any]],
    arguments: ComparisonArguments,
    folder: Path,
) -> Search:
    """Check all configurations, load the data and choose the score, before anything runs."""
    configurations = expand_configurations(over)
    plans: dict[str, str] = {}
    first: AnyPlan | None = None
    for configuration in configurations:
        label = get_label(configuration)
        try:
            plan = _make_jobs(recipe, scenario, arguments, configuration, folder)[0].plan
        except ThalwegError as error:
            raise ConfigError(f"configuration {label}: {error} Nothing was run.") from error
        same = plans.setdefault(plan_to_toml(plan), label)
        require(
            same == label,
            f"expected different configurations, but {same} and {label} are the same plan; remove "
            "one of the values.",
        )
        first = first or plan
    assert first is not None  # there are at least two configurations
    data = first.scenario.data.load(arguments.data_dir, first.seed)
    metric = choose_score(first, data)
    if metric.startswith("validation") and first.scenario.validation == 0:
        overrides = [*arguments.overrides, f"validation={VALIDATION}"]
        arguments = replace(arguments, overrides=overrides)  # also in the command of the best one
    return Search(
        recipe=recipe,
        scenario=scenario,
        arguments=arguments,
        folder=folder,
        configurations=configurations,
        rungs=plan_rungs(len(configurations), first.scenario.rounds),
        metric=get_metric(metric),
        plan=first,
        data=data,
    )


def plan_rungs(num_configurations: int, rounds: int) -> list[tuple[int, int]]:
    """The number of configurations and the number of rounds of each rung.

    A rung is left out if its runs are as long as those of the rung before.

    >>> plan_rungs(6, rounds=40)
    [(6, 5), (2, 14), (1, 40)]
    >>> plan_rungs(6, rounds=2)
    [(6, 1), (1, 2)]
    """
    counts = [num_configurations]
    while counts[-1] > 1:
        counts.append(-(-counts[-1] // ETA))
    rungs: list[tuple[int, int]] = []
    for index, count in enumerate(counts):
        length = -(-rounds // ETA ** (len(counts) - 1 - index))
        if not rungs or length > rungs[-1][1]:
            rungs.append((count, length))
    return rungs


def choose_score(plan: AnyPlan, data: Dataset) -> str:
    """Return the metric by which configurations are chosen; never one of the test set."""
    kind = "mae" if data.task == "regression" else "accuracy"
    headline = plan.scenario.headline
    require(
        headline in (None, kind, f"prequential_{kind}"),
        f"headline={headline} has no effect here: configurations are chosen by validation_{kind} "
        f"or prequential_{kind}, never by a metric on the test set. Leave it out, or use "
        f"headline={kind} or headline=prequential_{kind}.",
    )
    has_validation = (
        not isinstance(plan, BaselinePlan)
        and not (headline or "").startswith("prequential")
        and data.time is None
        and plan.scenario.sessions is None
        and len(data.y_test) > 0
    )
    if has_validation:
        return f"validation_{kind}"
    require(
        plan.scenario.prequential > 0,
        f"configurations on {plan.scenario.name} are chosen by the prequential (test-then-train) "
        "metric, but no arriving samples are predicted (prequential=0); predict some "
        f"({format_setting('prequential', 32)}).",
    )
    return f"prequential_{kind}"


def get_score_heading(metric: Metric) -> str:
    """The heading of the score in tables.

    >>> get_score_heading(get_metric("validation_accuracy"))
    'validation accuracy'
    >>> get_score_heading(get_metric("prequential_mae"))
    'prequential MAE'
    """
    return metric.name.replace("_", " ").replace("mae", "MAE")


def parse_over(texts: Iterable[str]) -> dict[str, list[str]]:
    """Parse ``field=value,value`` texts; a value in brackets may contain commas.

    >>> parse_over(["local.lr=0.01,0.03", "local.optimizer.betas=[0.9,0.99],[0.5,0.9]"])
    {'local.lr': ['0.01', '0.03'], 'local.optimizer.betas': ['[0.9,0.99]', '[0.5,0.9]']}
    """
    over: dict[str, list[str]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip()
        require(
            bool(equals and name),
            f"--over {text!r}: expected part.field=value,value, such as local.lr=0.01,0.03.",
        )
        require(name not in over, f"--over {name} is given twice; write all values in one option.")
        over[name] = _split_values(values)
    return over


def _split_values(text: str) -> list[str]:
    """Split at commas that are not in brackets."""
    values, depth = [""], 0
    for character in text:
        depth += (character in "[{(") - (character in ")}]")
        if character == "," and depth == 0:
            values.append("")
        else:
            values[-1] += character
    return [value.strip() for value in values if value.strip()]


def expand_configurations(over: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """Return all combinations of the values; the last field varies fastest.

    >>> expand_configurations({"local.lr": [0.1, 0.3], "weights": ["equal"]})
    [{'local.lr': 0.1, 'weights': 'equal'}, {'local.lr': 0.3, 'weights': 'equal'}]
    """
    values: dict[str, list[Any]] = {}
    example = "such as local.lr=0.01,0.03"
    require(len(over) > 0, f"expected fields to choose (--over), got none; add some, {example}.")
    for name, given in over.items():
        require(
            name.partition(".")[0] not in PROBLEM_FIELDS,
            f"{name} belongs to the problem, not to the method: scores of different values cannot "
            f"be compared. Remove it from over (--over); set it for all runs "
            f"({format_setting(name)}).",
        )
        require(
            isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping),
            f"over[{name!r}]: expected a list of values, got {given!r}; write [{given!r}, ...].",
        )
        values[name] = list(given)
        require(
            len(values[name]) > 0,
            f"{name}: expected at least one value, got none; add some, {example}.",
        )
        texts = [format_value(value) for value in values[name]]
        require(
            len(set(texts)) == len(texts),
            f"{name}: expected different values, got {', '.join(texts)}; remove the repeated one.",
        )
    found = [dict(zip(values, each, strict=True)) for each in product(*values.values())]
    require(
        len(found) > 1,
        f"expected at least two configurations, got one: {get_label(found[0])}. Add values, or run "
        "it with thalweg run.",
    )
    return found


def get_overrides(configuration: Mapping[str, Any]) -> list[str]:
    """The settings of a configuration as ``part.field=value``."""
    return [f"{name}={format_value(value)}" for name, value in configuration.items()]


def get_label(configuration: Mapping[str, Any]) -> str:
    """The name of a configuration in tables and messages."""
    return " ".join(get_overrides(configuration))


def format_value(value: Any) -> str:
    """A value as it is written on the command line.

    >>> format_value(0.01), format_value(True), format_value((0.9, 0.99)), format_value("fifo")
    ('0.01', 'true', '[0.9, 0.99]', 'fifo')
    """
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    if hasattr(value, "tolist"):  # a number of NumPy
        value = value.tolist()
    if isinstance(value, bool | int | float | list | tuple):
        return json.dumps(value)
    raise ConfigError(
        f"over: expected numbers, texts or lists, which can be written on the command line, got "
        f"{value!r}; use the name of a component, such as 'fifo', and its fields."
    )
