"""``thalweg compare``"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer
from rich.console import Console

from thalweg.cli.arguments import connect_workers, format_seeds, require_scenario
from thalweg.cli.cell_progress import show_cell_progress
from thalweg.cli.plan_view import plan_tree
from thalweg.cli.progress import format_duration, print_json
from thalweg.cli.run import load_data
from thalweg.core.metrics import make_final_row
from thalweg.engine.baseline import is_deterministic
from thalweg.engine.cells import CellJob, is_done
from thalweg.engine.plan import BaselinePlan, format_command
from thalweg.engine.ray.cluster import get_num_workers
from thalweg.engine.task import is_time_ordered
from thalweg.report import (
    Cell,
    event_tables,
    extra_markdown,
    extra_rich,
    has_figure,
    summarise,
    to_csv,
    to_markdown,
    to_rich,
    transition_table,
    use_session_accuracy,
    write_figure,
    write_page,
)
from thalweg.report.comparison import ComparisonArguments, comparison_jobs, read_cell


def compare_command(
    recipes: list[str], on: str | None, arguments: ComparisonArguments, as_json: bool
) -> None:
    """Run the missing runs of a comparison, print its tables and write its files."""
    console, on = Console(), require_scenario(on)
    folder = arguments.out or Path("runs") / f"compare-{Path(on).stem}"
    jobs = comparison_jobs(recipes, on, arguments, folder)
    missing = [job for job in jobs if not is_done(job)]
    in_time = False
    if not as_json:
        first = jobs[0].plan
        data = load_data(first, arguments.data_dir) if missing else None
        in_time = data is not None and is_time_ordered(first.scenario, data)
        console.print(plan_tree(first, None, data))
        del data
        kept = len(jobs) - len(missing)
        console.print(
            f"{len(jobs)} runs ({len(recipes)} recipes x {len(arguments.seeds)} seeds"
            + (", deterministic baselines once)" if any(map(_is_deterministic, jobs)) else ")")
            + (f", {kept} of them already in {folder}" if kept else ""),
            highlight=False,
            soft_wrap=True,
        )
    arguments = connect_workers(arguments) if missing else arguments
    began, workers = time.perf_counter(), get_num_workers(arguments.workers)
    try:
        with show_cell_progress(missing, console, as_json, workers, in_time) as watch:
            failures = arguments.run(jobs, watch)
    except KeyboardInterrupt:
        typer.echo("interrupted; the same command continues the comparison.", err=True)
        raise SystemExit(130) from None
    cells = [read_cell(job, failures.get(job.folder)) for job in jobs]
    shown = [use_session_accuracy(cell) for cell in cells]
    files = _write(folder, on, shown)
    summaries = summarise(shown)
    if as_json:
        for row in _json_rows(cells):
            print_json(row)
    else:
        console.print(to_rich(summaries, width=console.width))
        for extra in (transition_table(cells), *event_tables(cells)):
            if (table := extra_rich(extra, width=console.width)) is not None:
                console.print(table)
        console.print(f"took {format_duration(time.perf_counter() - began)}", highlight=False)
        for what, file in files.items():
            console.print(f"{what:<7}{file}", highlight=False, soft_wrap=True)
        for index, command in enumerate(["thalweg list", *next_steps(jobs, on, arguments)]):
            label = "" if index else "next"
            console.print(f"{label:<7}{command}", highlight=False, soft_wrap=True)
    if failures:
        raise SystemExit(1)


def _write(folder: Path, on: str, cells: Sequence[Cell]) -> dict[str, Path]:
    summaries = summarise(cells)
    files = {"page": folder / "index.html", "table": folder / "table.md"}
    extras = map(extra_markdown, (transition_table(cells), *event_tables(cells)))
    (folder / "table.md").write_text(to_markdown(summaries) + "".join(extras))
    (folder / "table.csv").write_text(to_csv(summaries))
    write_page(files["page"], f"Comparison on {on}", cells)
    if has_figure(cells):
        files["figure"] = folder / "accuracy.png"
        write_figure(files["figure"], cells)
    return files


def _is_deterministic(job: CellJob) -> bool:
    return is_deterministic(job.plan)


def _json_rows(cells: Sequence[Cell]) -> Iterator[dict[str, object]]:
    for cell in cells:
        final = make_final_row(cell.rows) if cell.rows else {}
        yield {
            "recipe": cell.recipe,
            "scenario": cell.scenario,
            "seed": cell.seed,
            "status": cell.status,
            "reason": cell.reason,
            "final": final,
            **({} if cell.alarms is None else {"alarms": cell.alarms}),
        }


def next_steps(jobs: Sequence[CellJob], on: str, arguments: ComparisonArguments) -> list[str]:
    """Commands to try next, with all options of this comparison."""
    label, plan = jobs[0].recipe, jobs[0].plan
    first = label.partition(",")[0]
    change = "pooled=true" if isinstance(plan, BaselinePlan) else f"local.lr={plan.local.lr / 2:g}"
    options = {"sets": arguments.overrides, **arguments.plan_options}
    variant = ["compare", first, f"{first},{change}", "--on", on]
    variant += ["--seeds", format_seeds(arguments.seeds)]
    return [
        format_command(["run", first, "--on", on, "--seed", "7"], **options),
        format_command(variant, out=arguments.out, **options),
    ]
