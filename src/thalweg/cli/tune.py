"""``thalweg tune``"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer
from rich.console import Console

from thalweg.cli.arguments import connect_workers, require_scenario
from thalweg.cli.cell_progress import show_cell_progress
from thalweg.cli.plan_view import plan_tree
from thalweg.cli.progress import format_duration, print_json
from thalweg.core.metrics import get_metric
from thalweg.engine.cells import CellJob, is_done
from thalweg.engine.ray.cluster import get_num_workers
from thalweg.report.comparison import ComparisonArguments
from thalweg.report.render import fold_columns, write_report_file
from thalweg.report.table import TableColumn
from thalweg.report.tuning import Search, Tuning, get_score_heading, make_search, parse_over


def tune_command(
    recipe: str,
    on: str | None,
    over: Sequence[str],
    arguments: ComparisonArguments,
    as_json: bool,
) -> None:
    """Run the missing runs of a tuning, print its table and the best command."""
    console, on = Console(), require_scenario(on)
    folder = arguments.out or Path("runs") / f"tune-{recipe.partition(',')[0]}-{Path(on).stem}"
    search = make_search(recipe, on, parse_over(over), arguments, folder)
    if not as_json:
        console.print(plan_tree(search.plan, None, search.data))
        console.print(_describe(search), highlight=False, soft_wrap=True)

    def run_rung(rung: int, jobs: Sequence[CellJob]) -> Mapping[Path, str]:
        missing = [job for job in jobs if not is_done(job)]
        if not as_json:
            console.print(
                _describe_rung(search, rung, len(jobs), len(missing)),
                highlight=False,
                soft_wrap=True,
            )
        connected = connect_workers(arguments) if missing else arguments
        workers = get_num_workers(connected.workers)
        with show_cell_progress(missing, console, as_json, workers) as watch:
            return connected.run(jobs, watch)

    began = time.perf_counter()
    try:
        tuning = search.run(run_rung)
    except KeyboardInterrupt:
        typer.echo("interrupted; the same command continues the tuning.", err=True)
        raise SystemExit(130) from None
    table = folder / "table.md"
    write_report_file(table, tuning.to_markdown().encode("utf-8"))
    if as_json:
        _print_json_lines(tuning)
        return
    _print_table(console, tuning)
    console.print(f"took {format_duration(time.perf_counter() - began)}", highlight=False)
    lines = [f"table  {table}", f"best   {' '.join(tuning.overrides)}", f"run    {tuning.command}"]
    console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


def _describe(search: Search) -> str:
    share = search.jobs(0, 1)[0].plan.scenario.validation
    is_validation = search.metric.name.startswith("validation")
    part = f" on {share:g} of the test samples" if is_validation else ""
    seeds = _count(len(search.arguments.seeds), "seed")
    return (
        f"{len(search.configurations)} configurations x {seeds}; the plan shows the first one\n"
        f"score: {get_score_heading(search.metric)}{part}, never the test metric"
    )


def _describe_rung(search: Search, rung: int, num_jobs: int, num_missing: int) -> str:
    kept = num_jobs - num_missing
    return (
        f"rung {rung} of {len(search.rungs)}: "
        f"{_count(num_jobs // len(search.arguments.seeds), 'configuration')}, "
        f"{_count(search.rungs[rung - 1][1], 'round')}"
        + (f", {kept} of {num_jobs} runs already done" if kept else "")
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _print_table(console: Console, tuning: Tuning) -> None:
    names, rounds, scores, ends = (list(column) for column in zip(*tuning.rows(), strict=True))
    heading = get_score_heading(get_metric(tuning.metric))
    columns = [
        TableColumn("configuration", names),
        TableColumn("rounds", rounds),
        TableColumn(heading, scores),
        TableColumn("ended", ends),
    ]
    console.print(
        fold_columns(columns, {0}, f"{tuning.recipe} on {tuning.scenario}", width=console.width)
    )
    for trial in tuning.trials:
        if trial.reason:
            reason = " ".join(trial.reason.split())
            text = f"{' '.join(trial.overrides)} diverged: {reason}"
            console.print(text, markup=False, highlight=False, style="yellow", soft_wrap=True)


def _print_json_lines(tuning: Tuning) -> None:
    """Print one JSON object per configuration, and one with the best command."""
    for trial in tuning.trials:
        score = None if trial.score is None else trial.score._asdict()
        print_json(
            {
                "settings": dict(trial.settings),
                "rung": trial.rung,
                "rounds": trial.rounds,
                tuning.metric: score,
                "reason": trial.reason,
            }
        )
    print_json({"best": tuning.best, "command": tuning.command})
