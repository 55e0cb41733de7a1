"""``thalweg compare``"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer
from rich.console import Console

from thalweg.baselines import BASELINES
from thalweg.cli.cell_progress import parse_seeds, show_cell_progress
from thalweg.cli.plan_view import plan_tree
from thalweg.cli.progress import format_duration, print_json
from thalweg.cli.run import NO_SCENARIO, load_data
from thalweg.core.errors import ConfigError
from thalweg.engine.cells import is_done, run_cells
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
from thalweg.report.comparison import comparison_jobs, read_cell


def compare_command(
    recipes: list[str],
    *,
    on: str | None,
    seeds: str,
    sets: list[str],
    rounds: int | None,
    out: Path | None,
    as_json: bool,
    engine: str,
    workers: int | None,
    data_dir: Path | None,
) -> None:
    """Run the missing runs of a comparison, print its tables and write its files."""
    console = Console()
    if on is None:
        raise ConfigError(NO_SCENARIO)
    folder = out or Path("runs") / f"compare-{Path(on).stem}"
    jobs = comparison_jobs(
        recipes,
        on,
        seeds=parse_seeds(seeds),
        rounds=rounds,
        overrides=sets,
        engine=engine,
        folder=folder,
        data_dir=data_dir,
    )
    missing = [job for job in jobs if not is_done(job)]
    if not as_json:
        first = jobs[0].plan
        data = load_data(first, data_dir) if missing else None
        console.print(plan_tree(first, None, data))
        del data
        kept = len(jobs) - len(missing)
        console.print(
            f"{len(jobs)} runs ({len(recipes)} recipes x {len(jobs) // len(recipes)} seeds)"
            + (f", {kept} of them already in {folder}" if kept else ""),
            highlight=False,
            soft_wrap=True,
        )
    began = time.perf_counter()
    try:
        with show_cell_progress(missing, console, as_json) as watch:
            failures = run_cells(jobs, workers=workers, data_dir=data_dir, watch=watch)
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
        console.print(_next_steps(recipes, on, sets), highlight=False, soft_wrap=True)
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


def _json_rows(cells: Sequence[Cell]) -> Iterator[dict[str, object]]:
    for cell in cells:
        final = dict(cell.rows[-1]) if cell.rows else {}
        yield {
            "recipe": cell.recipe,
            "scenario": cell.scenario,
            "seed": cell.seed,
            "status": cell.status,
            "reason": cell.reason,
            "final": final,
            **({} if cell.alarms is None else {"alarms": cell.alarms}),
        }


def _next_steps(recipes: Sequence[str], on: str, sets: Sequence[str]) -> str:
    """Commands to try next, with the overrides of this one."""
    first = recipes[0].partition(",")[0]
    change = "pooled=true" if first in BASELINES else "weights=equal"
    overrides = [word for each in sets for word in ("--set", each)]
    one = shlex.join(["thalweg", "run", first, "--on", on, "--seed", "7", *overrides])
    variant = shlex.join(["thalweg", "compare", first, f"{first},{change}", "--on", on, *overrides])
    return f"next   thalweg list\n       {one}\n       {variant}"
