"""``thalweg run``"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import typer
from rich.console import Console

from thalweg.cli.arguments import require_scenario
from thalweg.cli.code_files import print_code_files
from thalweg.cli.messages import print_message
from thalweg.cli.plan_view import plan_tree
from thalweg.cli.progress import format_duration, print_json, show_progress
from thalweg.core.config import parse_overrides
from thalweg.core.errors import ConfigError
from thalweg.core.metrics import (
    HEADLINE_WORDS,
    METRICS,
    Metric,
    choose_headline,
    describe_simple,
    get_metric,
    is_redundant,
    metrics_in,
)
from thalweg.data import Dataset
from thalweg.data.checks import is_own_data
from thalweg.engine.baseline import run_any_plan
from thalweg.engine.plan import (
    AnyPlan,
    Plan,
    check_used_by,
    find_method,
    format_command,
    get_method,
    make_any_plan,
    read_any_plan,
)
from thalweg.engine.ray.cluster import choose_cluster
from thalweg.engine.result import MetricsRow, Result
from thalweg.engine.task import is_time_ordered
from thalweg.engine.trackers import make_trackers, track_run
from thalweg.recipes import Recipe
from thalweg.recipes.base import needs_sessions
from thalweg.scenarios import Scenario, find_scenario


def run_command(
    recipe: str,
    *,
    on: str | None,
    sets: list[str],
    seed: int | None,
    rounds: int | None,
    out: Path | None,
    resume: bool,
    as_json: bool,
    engine: str,
    address: str | None,
    num_gpus: float | None,
    workers: int | None,
    device: str,
    data_dir: Path | None,
    track: Sequence[str] = (),
) -> None:
    """Run a plan, show its progress and print its results."""
    console = Console()
    cluster = choose_cluster(engine, address, num_gpus, workers)
    engine = "auto" if cluster else engine
    plan, default, command = plan_from_options(
        recipe, on, sets, seed, rounds, engine, data_dir=data_dir
    )
    if out is None:
        out = Path(recipe) if resume and Path(recipe).is_dir() else default_run_folder(plan, resume)
    trackers = make_trackers(track, out)
    data = load_data(plan, data_dir)
    in_time = is_time_ordered(plan.scenario, data)
    if not as_json:
        console.print(plan_tree(plan, default, data))
    try:
        with (
            show_progress(plan, console, as_json, in_time) as watch,
            track_run(trackers, watch, _print_warning) as tracking,
        ):
            result = tracking.result = run_any_plan(
                plan,
                out=out,
                resume=resume,
                data_dir=data_dir,
                watch=tracking.watch,
                command=f"{command} --out {shlex.quote(str(out))}",
                workers=cluster or workers,
                device=device,
                data=data,
            )
    except KeyboardInterrupt:
        again = format_command(["run", str(out), "--resume"], data_dir=data_dir)
        typer.echo(f"interrupted; continue with: {again}", err=True)
        raise SystemExit(130) from None
    if as_json:
        print_json({"folder": str(out), "final": dict(result.final)})
    else:
        alarms = result.alarms if isinstance(result, Result) else None
        simple = result.simple_scores if isinstance(result, Result) else None
        print_summary(console, plan, result.metrics, alarms, out, command, in_time, simple)


def load_data(plan: AnyPlan, data_dir: Path | None) -> Dataset:
    """Load the data of a plan, which determine the task that is shown with it."""
    return plan.scenario.data.load(data_dir, plan.seed)


def plan_from_options(
    recipe: str,
    on: str | None,
    sets: list[str],
    seed: int | None,
    rounds: int | None,
    engine: str = "auto",
    verb: str = "run",
    data_dir: Path | None = None,
) -> tuple[AnyPlan, AnyPlan | None, str]:
    """The plan, the plan without overrides (None for a run folder), and its command."""
    if recipe.endswith(".toml") or Path(recipe).is_dir():
        if on is not None or sets or seed is not None or rounds is not None:
            raise ConfigError(
                f"{recipe} is a complete plan; --on, --set, --seed and --rounds cannot change it. "
                "Edit a copy of its plan.toml, or use the name of a recipe."
            )
        command = format_command([verb, recipe], data_dir=data_dir if verb == "run" else None)
        print_code_files(Path(recipe))
        return read_any_plan(Path(recipe)), None, command
    on = require_scenario(on)
    check_used_by([find_method(recipe)], parse_overrides(sets))
    plan = make_any_plan(
        recipe,
        on,
        seed=seed or 0,
        rounds=rounds,
        engine=engine,
        overrides=sets,
        data_dir=data_dir,
    )
    words = [verb, recipe, "--on", on, "--seed", str(plan.seed)]
    folder = data_dir if verb == "run" else None  # `serve` adds its own options
    command = format_command(words, sets=sets, rounds=rounds, engine=engine, data_dir=folder)
    scenario = find_scenario(on)
    if is_own_data(scenario.data):  # without its columns, a file cannot be read
        scenario = replace(scenario, data=plan.scenario.data)
    return plan, _make_default_plan(recipe, scenario, plan, data_dir), command


def _make_default_plan(
    recipe: str, scenario: Scenario, plan: AnyPlan, data_dir: Path | None
) -> AnyPlan:
    """Return the plan without overrides; with those of the sessions if it needs some."""
    method = find_method(recipe)
    if isinstance(method, Recipe) and isinstance(plan, Plan) and needs_sessions(method):
        method = replace(method, session_trigger=plan.recipe.session_trigger)
        scenario = replace(scenario, sessions=plan.scenario.sessions)
    return make_any_plan(method, scenario, seed=plan.seed, data_dir=data_dir)


def default_run_folder(plan: AnyPlan, resume: bool) -> Path:
    """runs/<recipe>-<scenario>-seed<n>, followed by a number if the folder exists."""
    base = Path("runs") / f"{get_method(plan).name}-{plan.scenario.name}-seed{plan.seed}"
    if resume or not base.exists():
        return base
    number = 2
    while (folder := base.with_name(f"{base.name}-{number}")).exists():
        number += 1
    return folder


def print_summary(
    console: Console,
    plan: AnyPlan,
    metrics: Sequence[MetricsRow],
    alarms: MetricsRow | None,
    out: Path,
    command: str,
    is_time_ordered: bool = False,
    simple_scores: Mapping[str, Mapping[str, float]] | None = None,
) -> None:
    """Print the results of a run, the headline metric first.

    `simple_scores` are the metrics of predictions that use no features, by their name.
    """
    from thalweg.evaluation import transitions
    from thalweg.report import transition_lines
    from thalweg.report.events import alarm_line, drift_lines

    seconds = METRICS["seconds"].aggregate(metrics) or 0.0
    megabytes = METRICS["megabytes"].aggregate(metrics)
    lines = [f"done in {format_duration(seconds)}, {len(metrics)} rounds, {megabytes:.1f} MB sent"]
    headline = choose_headline(
        {name for row in metrics for name in row},
        is_time_ordered=is_time_ordered,
        requested=plan.scenario.headline,
    )
    lines += idle_lines(metrics)
    own, repeats_rows = plan.scenario.own_metrics, plan.scenario.repeats_rows
    lines += metric_lines(metrics, list(own.values()), headline, repeats_rows=repeats_rows)
    lines += simple_lines(metrics, own.get(headline) or get_metric(headline), simple_scores)
    for index, line in enumerate(transition_lines(transitions(metrics))):
        lines.append(_line("" if index else "transitions", line))
    if alarms is not None:
        lines.append(_line("alarms", alarm_line(alarms)))
    lines += [_line(label, line) for label, line in drift_lines(metrics)]
    lines += [_line("results", f"{out}/"), _line("repeat", command)]
    console.print("\n".join(lines), highlight=False, soft_wrap=True)


def idle_lines(metrics: Sequence[MetricsRow]) -> list[str]:
    """A warning if no client has trained; `cohort` counts those whose updates were used.

    >>> idle_lines([{"cohort": 0, "too_few": 1}, {"cohort": 0}])[0]
    'warning         no round has changed the model: of 2 rounds, 1 had too few clients for a sum,'
    >>> idle_lines([{"cohort": 0}, {"cohort": 1}]) + idle_lines([{"accuracy": 0.5}])
    []
    """
    if not metrics or any(row.get("cohort", 1) for row in metrics):
        return []
    too_few = sum(row.get("too_few", 0) for row in metrics)
    return [
        _line(
            "warning",
            f"no round has changed the model: of {len(metrics)} rounds, {too_few} had too few "
            "clients for a sum,",
        ),
        _line("", "the others had no available clients or no valid updates"),
    ]


def metric_lines(
    metrics: Sequence[MetricsRow],
    own: Sequence[Metric] = (),
    headline: str = "",
    *,
    repeats_rows: bool = False,
) -> list[str]:
    """One line for every metric that applies to a run; `own` are those of the user.

    A headline other than the default ones comes first.

    >>> rows = [{"prequential_accuracy": 0.25}, {"prequential_accuracy": 0.75, "accuracy": 0.5}]
    >>> print(*metric_lines(rows), sep="\\n")
    accuracy        0.5000   final model on held-out rows (test)
    prequential     0.5000   arriving rows before training on them (test-then-train)
    """
    declared = [*metrics_in("run"), *own]
    if headline not in ("accuracy", "mae"):  # they are first, after those of a session
        declared.sort(key=lambda metric: metric.name != headline)
    values = {metric.name: metric.aggregate(metrics) for metric in declared}
    return [
        _line(
            metric.column,
            f"{values[metric.name]:.4f}   {metric.get_note(repeats_rows=repeats_rows)}",
        )
        for metric in declared
        if values[metric.name] is not None and not is_redundant(metric, [values])
    ]


def simple_lines(
    metrics: Sequence[MetricsRow],
    metric: Metric,
    simple_scores: Mapping[str, Mapping[str, float]] | None,
) -> list[str]:
    """Sentences that compare the headline metric with predictions that use no features.

    >>> rows = [{"prequential_accuracy": 0.8, "tested": 9}]
    >>> found = {"majority": {"prequential_accuracy": 0.62}, "no-change": {"accuracy": 0.5}}
    >>> print(*simple_lines(rows, METRICS["prequential_accuracy"], found), sep="\\n")
    test-then-train accuracy 0.8000; predicting the majority class gives 0.6200
    """
    ours = metric.aggregate(metrics)
    known = {
        name: scores[metric.name]
        for name, scores in (simple_scores or {}).items()
        if metric.name in scores
    }
    if ours is None or not known:
        return []
    texts = [f"{describe_simple(name)} gives {value:.4f}" for name, value in known.items()]
    words = HEADLINE_WORDS.get(metric.name, metric.column)
    lines = [f"{words} {ours:.4f}; {texts[0]}", *texts[1:]]
    sign = -1 if metric.better == "lower" else 1
    if any(sign * value >= sign * ours for value in known.values()):
        lines.append("The model is not better than these predictions, which use no features.")
    return lines


def _print_warning(message: str) -> None:
    print_message(f"warning: {message}")


def _line(label: str, text: str) -> str:
    return f"{label:<16}{text}"
