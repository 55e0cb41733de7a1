"""Compare recipes on one scenario with the same seeds; finished runs are reused."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thalweg.baselines import Baseline
from thalweg.core.config import parse_overrides
from thalweg.core.errors import RunError, require
from thalweg.data.checks import is_own_data, warn_about_data
from thalweg.engine.baseline import is_deterministic
from thalweg.engine.cells import CellCallback, CellJob, is_done, run_cells
from thalweg.engine.devices import check_device_name
from thalweg.engine.plan import (
    AnyPlan,
    Plan,
    apply_settings,
    check_used_by,
    find_method,
    format_command,
    get_part,
    is_used_by,
    make_any_plan,
)
from thalweg.engine.ray.cluster import RayCluster, choose_cluster
from thalweg.engine.result import read_client_names, rows_to_html, table_to_pandas
from thalweg.engine.run_folder import RunFolder
from thalweg.engine.trackers import TRACKERS, make_trackers
from thalweg.evaluation.named import split_metric
from thalweg.recipes import Recipe
from thalweg.recipes.monitoring import describe_alarm
from thalweg.report.cells import Cell, Status, use_session_accuracy
from thalweg.report.summary import PairedDifference, Summary, rank, summarise
from thalweg.scenarios import Scenario, ScenarioLike

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Comparison:
    """The cells of a comparison, by recipe and seed."""

    scenario: str
    cells: Sequence[Cell]

    def summary(self) -> list[Summary]:
        """Mean and spread of every recipe over its seeds, from the best recipe to the worst."""
        return rank(summarise([use_session_accuracy(cell) for cell in self.cells]))

    def table(self) -> pa.Table:
        """Return an Arrow table with one row per recipe: mean, spread and paired test.

        The rows are ordered from the best recipe to the worst. `metric` is the headline.
        `difference` is that to the recipe `against`, seed by seed, and `p_value` that of a paired
        t-test, corrected for the number of tests.
        """
        import pyarrow as pa

        rows = [
            {
                "recipe": each.recipe,
                "metric": each.main_metric,
                "mean": each.main and each.main.mean,
                "std": each.main and each.main.std,
                "seeds": each.num_done,
                "against": each.against,
                "difference": each.difference and each.difference.mean,
                "p_value": each.difference and each.difference.p_value,
            }
            for each in self.summary()
        ]
        return pa.table({name: [row[name] for row in rows] for name in rows[0]})

    def tests(self) -> dict[str, PairedDifference]:
        """Return the paired difference of each recipe to the first one, by recipe."""
        return {each.recipe: each.difference for each in self.summary() if each.difference}

    def to_pandas(self) -> Any:
        """Return `table` as a pandas frame."""
        return table_to_pandas(self.table())

    def plot(self) -> Figure:
        """Return a figure of the metrics over the rounds, with the spread over seeds."""
        from thalweg.report.figure import draw_figure

        return draw_figure(self.cells)

    def __repr__(self) -> str:
        summaries = self.summary()
        values = ", ".join(f"{each.recipe} {_format_spread(each)}" for each in summaries)
        metric = summaries[0].headline.column
        return f"<Comparison on {self.scenario}, {metric}: {values}>"

    def _repr_html_(self) -> str:
        summaries = self.summary()
        title = f"{self.scenario}, {summaries[0].headline.column}"
        return rows_to_html(
            {"recipe": title, **{each.recipe: _format_spread(each) for each in summaries}}
        )


def _format_spread(summary: Summary) -> str:
    if summary.main is None:
        return "not finished"
    spread = "" if summary.main.std is None else f" ± {summary.main.std:.4f}"
    return f"{summary.main.mean:.4f}{spread}"


@dataclass(frozen=True, kw_only=True)
class ComparisonArguments:
    """The arguments of `compare` and `tune`, besides the recipes, the scenario and callbacks."""

    seeds: Sequence[int]
    rounds: int | None = None  # None: those of the scenario
    overrides: Sequence[str] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)  # of all recipes or the scenario
    model: Any = None
    engine: str = "auto"
    workers: int | RayCluster | None = None
    out: Path | None = None
    data_dir: Path | None = None
    track: Sequence[str] = ()  # names of trackers
    device: str = "auto"

    def __post_init__(self) -> None:
        check_device_name(self.device)
        _check_trackers(self.track)

    def run(self, jobs: Sequence[CellJob], watch: CellCallback | None) -> dict[Path, str]:
        """Run the unfinished jobs; return the folders that failed, with the reasons."""
        return run_cells(
            jobs,
            workers=self.workers,
            data_dir=self.data_dir,
            watch=watch,
            track=self.track,
            device=self.device,
        )

    @property
    def setting_names(self) -> list[str]:
        """The names of all settings of the recipes or the scenario."""
        model = [] if self.model is None else ["net"]
        return [*model, *parse_overrides(self.overrides), *self.settings]

    @property
    def plan_options(self) -> dict[str, Any]:
        """The options that `make_any_plan` and `format_command` share, besides the overrides."""
        return {"rounds": self.rounds, "engine": self.engine, "data_dir": self.data_dir}


def make_arguments(
    *,
    seeds: int | Iterable[int],
    overrides: Iterable[str],
    out: str | os.PathLike[str] | None,
    data_dir: str | os.PathLike[str] | None,
    settings: Mapping[str, Any],
    short_forms: Mapping[str, Any],
    **others: Any,
) -> ComparisonArguments:
    """Return the arguments of a call from Python; `short_forms` that are None are left out."""
    given = {name: value for name, value in short_forms.items() if value is not None}
    return ComparisonArguments(
        seeds=list(range(seeds)) if isinstance(seeds, int) else list(seeds),
        overrides=list(overrides),
        out=None if out is None else Path(out),
        data_dir=None if data_dir is None else Path(data_dir),
        settings={**settings, **given},
        **others,
    )


def compare(
    recipes: Iterable[Recipe | Baseline | str],
    scenario: ScenarioLike,
    *,
    model: Any = None,
    loss: Any = None,
    metrics: Any = None,
    optimizer: Any = None,
    seeds: int | Iterable[int] = 3,
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
    track: str | Iterable[str] | None = None,
    **settings: Any,
) -> Comparison:
    """Run every recipe with every seed; with `out`, finished runs are kept there and reused.

    A recipe is an object, a name, or a name with changes: ``"sfedpo,weights=equal"``. Baselines are
    allowed as well. `model`, `loss`, `metrics`, `optimizer` and `settings` change all recipes or
    the scenario, as in `thalweg.run`. `track` are names of trackers; each run of the comparison is
    a run of its own in them. With ``engine="ray"`` the runs are distributed to the nodes of the Ray
    cluster at `address`; `out` is then a folder that they share. `device` is that of `thalweg.run`.
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
        track=[track] if isinstance(track, str) else list(track or ()),
        settings=settings,
        short_forms={"loss": loss, "metrics": metrics, "optimizer": optimizer},
    )
    with tempfile.TemporaryDirectory(prefix="thalweg-") as scratch:
        jobs = comparison_jobs(recipes, scenario, arguments, arguments.out or Path(scratch))
        plan = jobs[0].plan
        _check_functions(plan.scenario)
        if is_own_data(plan.scenario.data):
            data = plan.scenario.data.load(arguments.data_dir, plan.seed)
            warn_about_data(plan.scenario.data, data)
        failures = arguments.run(jobs, watch)
        cells = [read_cell(job, failures.get(job.folder)) for job in jobs]
    return Comparison(plan.scenario.name, cells)


def check_shared_folder(cluster: RayCluster | None, out: str | os.PathLike[str] | None) -> None:
    """Reject runs on other machines without a folder for their results."""
    require(
        cluster is None or cluster.address is None or out is not None,
        "the nodes of a Ray cluster write results to a folder that they share, but out is None. "
        "Expected its path: out=...",
    )


def _check_trackers(names: Sequence[Any]) -> None:
    """Reject objects, which cannot be sent to the processes of a comparison, and unknown names."""
    for name in names:
        require(
            isinstance(name, str),
            f"track={name!r}: the runs of a comparison are in other processes, which cannot use an "
            f"object. Expected names: {', '.join(TRACKERS)}. Pass the object to thalweg.run.",
        )
    make_trackers(names, None)  # a missing library is reported before the runs


def _check_functions(scenario: Scenario) -> None:
    """Reject a loss or a metric that the processes of a comparison cannot load."""
    paths = [("metrics", split_metric(text)[1]) for text in scenario.metrics]
    for what, path in [("loss", getattr(scenario.loss, "path", "")), *paths]:
        require(
            "<" not in path,
            f"{what}={path}: the runs of a comparison are in other processes, which cannot load a "
            "lambda, an instance or an inner function. Expected a function at the top of a file; "
            "define it there.",
        )


def comparison_jobs(
    recipes: Iterable[Recipe | Baseline | str],
    scenario: ScenarioLike,
    arguments: ComparisonArguments,
    folder: Path,
) -> list[CellJob]:
    """The jobs of a comparison; raises an error for unknown names before anything runs.

    A deterministic baseline has one job, with the first seed.
    """
    recipes, options = list(recipes), arguments.plan_options
    require(len(arguments.seeds) > 0, "a comparison needs at least one seed.")
    require(len(recipes) > 0, "a comparison needs at least one recipe.")
    labels = [recipe if isinstance(recipe, str) else recipe.name for recipe in recipes]
    repeated = next((label for label in labels if labels.count(label) > 1), None)
    require(
        repeated is None,
        f"recipes must have different names, got {labels}. Remove {repeated}, or change a setting "
        f"of it ({repeated},local.lr=0.01).",
    )
    parts = [recipe_parts(each) if isinstance(each, str) else [each] for each in recipes]
    check_used_by([find_method(name) for name, *_ in parts], arguments.setting_names)
    jobs = []
    for label, (name, *changes) in zip(labels, parts, strict=True):
        method, problem = name, scenario
        if arguments.settings or arguments.model is not None:  # overrides take precedence
            method, problem = apply_settings(
                find_method(name), scenario, (), arguments.settings, arguments.model
            )
        known = find_method(name)
        shared = [each for each in arguments.overrides if is_used_by(known, get_part(each))]
        sets = [*shared, *map(str, changes)]
        check_used_by([known], parse_overrides(map(str, changes)))
        for seed in arguments.seeds:
            plan = make_any_plan(method, problem, seed=seed, overrides=sets, **options)
            command = cell_command(plan, method, problem, sets=sets, **options)
            jobs.append(CellJob(label, plan, folder / folder_name(label) / f"seed-{seed}", command))
            if is_deterministic(plan):
                break
    return jobs


def read_cell(job: CellJob, failure: str | None = None) -> Cell:
    """Read a cell from its run folder. An unfinished run is never a result."""
    folder = RunFolder(job.folder)
    rows, damage = _read_metrics(folder)
    failure = failure or folder.failure()
    status: Status = "missing"
    reason = "not run yet"
    if damage:
        status, reason = "failed", damage
    elif is_done(job, folder):
        status, reason = "done", ""
    elif failure is not None:
        status, reason = "failed", failure
    elif rows:
        status = "interrupted"
        reason = f"stopped after round {len(rows)} of {job.plan.scenario.rounds}"
    summary = folder.summary() if status == "done" else {}
    return Cell(
        recipe=job.recipe,
        scenario=job.plan.scenario.name,
        seed=job.plan.seed,
        status=status,
        reason=reason,
        rows=rows,
        command=job.command,
        seconds=sum(row.get("seconds", 0.0) for row in rows),
        alarms=summary.get("alarms"),
        headline=job.plan.scenario.headline or "",
        is_time_ordered=bool(summary.get("is_time_ordered")),
        no_effect=summary.get("no_effect", {}),
        repeats_rows=job.plan.scenario.repeats_rows,
        simple_scores=summary.get("simple_scores", {}),
        client_names=read_client_names(job.folder) if status == "done" else (),
        alarm_meaning=describe_alarm(job.plan.recipe) if isinstance(job.plan, Plan) else "",
        is_deterministic=is_deterministic(job.plan),
        own_metrics=job.plan.scenario.own_metrics,
    )


def _read_metrics(folder: RunFolder) -> tuple[list[dict[str, Any]], str]:
    """Return the rows of a run, or the reason why they cannot be read."""
    try:
        return folder.metrics(), ""
    except RunError as error:
        return [], str(error)


def recipe_parts(text: str) -> list[str]:
    """``"sfedpo,weights=equal,memory.budget=0.3"`` -> the name, then the changes."""
    return re.split(r",(?=[a-z_.]+=)", text)


def folder_name(label: str) -> str:
    """Replace the characters of a label that are not safe in file names."""
    return re.sub(r"[^A-Za-z0-9._=+-]", "-", label)


def cell_command(
    plan: AnyPlan, recipe: Recipe | Baseline | str, scenario: ScenarioLike, **options: Any
) -> str:
    """The command that runs this cell; objects made in Python have none.

    `options` are those of `format_command`.
    """
    if not isinstance(recipe, str) or not isinstance(scenario, str):
        return f"(made in Python) {plan.title}"
    words = ["run", recipe, "--on", scenario, "--seed", str(plan.seed)]
    return format_command(words, **options)
