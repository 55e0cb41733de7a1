"""``thalweg reproduce``"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from thalweg.cli.arguments import parse_seeds
from thalweg.cli.cell_progress import estimate_seconds, show_cell_progress
from thalweg.cli.progress import format_duration, print_json
from thalweg.core.errors import UnknownName, require
from thalweg.core.metrics import make_final_row
from thalweg.engine.cells import is_done
from thalweg.engine.ray.cluster import choose_cluster, connect_cluster, get_num_workers
from thalweg.report.auto_table import (
    compare_auto,
    describe_targets,
    tabulate_comparison,
    tabulate_parts,
)
from thalweg.report.measured import (
    check_can_save,
    measure_study,
    read_all_measured,
    save_study,
)
from thalweg.report.render import fold_columns
from thalweg.report.status import (
    STATUS_LEGEND,
    ExhibitStatus,
    make_status,
    to_record,
    to_texts,
)
from thalweg.report.study import (
    StudyPlan,
    StudyResult,
    Timing,
    plan_study,
    read_study,
    run_study,
    write_study,
)
from thalweg.report.study_cells import Scale
from thalweg.report.study_table import study_headline, study_rich
from thalweg.scenarios.studies import STUDIES, auto
from thalweg.scenarios.studies.papers import PAPERS


def reproduce_command(
    study: str | None,
    *,
    only: Sequence[str],
    seeds: str | None,
    scale: str,
    data: str | None,
    show: bool,
    out: Path | None,
    as_json: bool,
    engine: str,
    address: str | None,
    num_gpus: float | None,
    workers: int | None,
    device: str,
    data_dir: Path | None,
    shard: str | None,
    save: bool,
    status: bool,
) -> None:
    """Run a study and write its tables and its page; without a study, list all."""
    console = Console()
    if status:
        require(study is None, "--status lists all papers; leave out the name of the study.")
        _show_status(console, as_json)
        return
    if study is None:
        require(not save, "--save stores the cells of a study; name one: thalweg reproduce STUDY.")
        _list(console, as_json)
        return
    if scale not in ("quick", "paper"):
        raise UnknownName("--scale", scale, ["quick", "paper"])
    cluster = choose_cluster(engine, address, num_gpus, workers)
    engine = "auto" if cluster else engine
    command = _command(study, only, seeds, scale, data, out, engine, data_dir)
    plan = plan_study(
        study,
        only=only,
        seeds=_seeds(seeds),
        scale=cast("Scale", scale),
        data=data,
        engine=engine,
        out=out,
        command=command,
        shard=shard,
    )
    if save:
        check_can_save(plan)
    if show:
        result = _finish(plan, console, as_json, None)
        if save and not _save(plan, result):
            raise SystemExit(1)
        return
    if cluster is not None and plan.missing:
        cluster = connect_cluster(cluster)
    number = get_num_workers(cluster or workers)
    if not as_json:
        _announce(plan, console, number)
    try:
        with show_cell_progress(plan.missing, console, as_json, number) as watch:
            timing = run_study(
                plan, workers=cluster or workers, device=device, data_dir=data_dir, watch=watch
            )
    except KeyboardInterrupt:
        if shard is not None:
            typer.echo("interrupted; the same command continues the shard.", err=True)
            raise SystemExit(130) from None
        result = read_study(plan)
        files = write_study(result)
        typer.echo(
            f"interrupted: {_describe_progress(result)}. Results so far: {files['page']}\n"
            f"continue with: {command}",
            err=True,
        )
        raise SystemExit(130) from None
    if shard is not None and (left := plan.count_missing()):
        # Another shard, which has read more results, may be writing the table.
        typer.echo(
            f"shard {shard}: {len(plan.jobs) - len(plan.missing)} of {len(plan.jobs)} runs are "
            f"done. {left} runs of all shards are missing; the last shard writes the table, and "
            f"this command writes it at any time: {command} --show",
            err=True,
        )
        raise SystemExit(1 if plan.missing else 0)
    result = _finish(plan, console, as_json, timing)
    is_saved = _save(plan, result) if save else True
    if not is_saved or any(not cell.is_done for cell in result.cells):
        raise SystemExit(1)


def _save(plan: StudyPlan, result: StudyResult) -> bool:
    """Store the finished entries; return whether these are all."""
    saved = save_study(plan, result)
    typer.echo(f"stored {_count(saved.cells, 'cell')} in {saved.file}", err=True)
    for line in saved.refused:
        typer.echo(f"not stored: {line}", err=True)
    return not saved.refused


def _finish(plan: StudyPlan, console: Console, as_json: bool, timing: Timing | None) -> StudyResult:
    """Write the files of a study and print the results."""
    result = read_study(plan)
    files = write_study(result)
    if as_json:
        for cell in result.cells:
            print_json(
                {
                    "study": result.study.name,
                    "row": cell.recipe,
                    "column": cell.scenario,
                    "seed": cell.seed,
                    "status": cell.status,
                    "reason": cell.reason,
                    "final": make_final_row(cell.rows) if cell.rows else {},
                }
            )
        return result
    console.print(study_rich(result, width=console.width))
    console.print(study_headline(result), highlight=False)
    if result.study.name == auto.NAME:
        _show_comparison(plan, result, console)
    if timing is not None and timing.rounds:
        console.print(
            f"took {format_duration(timing.wall_seconds)}; computing time "
            f"{format_duration(timing.seconds)}, speed-up {timing.speedup:.2f} with "
            f"{timing.workers} worker{'s' if timing.workers > 1 else ''}",
            highlight=False,
        )
    for what, file in files.items():
        console.print(f"{what:<7}{file}", highlight=False, soft_wrap=True)
    if timing is None:
        console.print(f"run    {plan.command}", highlight=False, soft_wrap=True)
    return result


def _show_comparison(plan: StudyPlan, result: StudyResult, console: Console) -> None:
    """Print how the recipe auto compares with the best specialist in each world."""
    cells, _ = measure_study(plan, result)
    if not (found := compare_auto(cells)):
        return
    for title, columns in (
        ("auto and the best specialist", tabulate_comparison(found)),
        ("auto minus auto without a part (* p < 0.05)", tabulate_parts(cells)),
    ):
        console.print(fold_columns(columns, set(), title, width=console.width))
    for sentence in describe_targets(found):
        console.print(sentence, highlight=False)


def _announce(plan: StudyPlan, console: Console, workers: int) -> None:
    """Print the size of the study and the expected time."""
    study, jobs, missing = plan.study, plan.jobs, plan.missing
    console.print(Text(study.title, style="bold"))
    console.print(
        f"{_count(study.rows, 'recipe')}, {_count(study.columns, 'scenario')}, "
        f"seed{'s' if len(study.seeds) > 1 else ''} {', '.join(map(str, study.seeds))}: "
        f"{_count(jobs, 'run')}, {len(jobs) - len(missing)} of them "
        "finished before",
        highlight=False,
    )
    if not missing:
        return
    rounds = sum(job.plan.scenario.rounds for job in missing)
    finished = [job for job in jobs if is_done(job)]
    left = estimate_seconds(missing, finished, workers)
    known = "the time is not known yet" if left is None else f"about {format_duration(left)}"
    console.print(f"{rounds} rounds left, {known}. Ctrl-C is safe at any time.", highlight=False)
    if plan.scale == "paper" and left is None:
        console.print(
            "For a quick test: --scale quick. For a part of the table: --only.",
            highlight=False,
        )


def _count(things: Sequence[object], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def _list(console: Console, as_json: bool) -> None:
    if as_json:
        print(json.dumps({name: study.num_cells for name, study in STUDIES.items()}, indent=2))
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("study", style="cyan", no_wrap=True)
    table.add_column("runs", justify="right")
    table.add_column("content")
    for name, study in STUDIES.items():
        table.add_row(name, str(study.num_cells), study.title.partition(": ")[2] or study.title)
    console.print(table)
    console.print(
        "\nthalweg reproduce sfedpo-table-1 --only fashion-mnist --scale quick\n"
        "thalweg reproduce sfedpo-table-3 --data digits",
        highlight=False,
    )


def _show_status(console: Console, as_json: bool) -> None:
    """List what was measured of each table and figure of the papers."""
    found = make_status(read_all_measured())
    if as_json:
        print(json.dumps([to_record(each) for each in found], indent=2))
        return
    for paper, about in PAPERS.items():
        console.print(Text(about.title, style="bold"))
        table = Table(box=None, padding=(0, 1, 0, 0))
        table.add_column("table", style="cyan", no_wrap=True, min_width=9)
        for heading, width in (("cells", 5), ("run", 4), ("within", 6), ("tau", 5)):
            table.add_column(heading, justify="right", no_wrap=True, min_width=width)
        for heading, width in (("scale", 7), ("seeds", 5)):
            table.add_column(heading, no_wrap=True, min_width=width)
        table.add_column("study", overflow="fold")
        mine = [each for each in found if each.paper == paper]
        for each in mine:
            *numbers, scale, seeds = to_texts(each)
            studies = "\n".join(each.studies)
            table.add_row(each.table, *numbers, _shorten_scale(scale), seeds, studies)
        table.add_row("all", *_sum_up(mine), "", "", "", "")
        console.print(table)
        rest = [f"{e.name} ({e.content})" for e in about.exhibits if not e.has_results]
        console.print(Text(f"Without results: {'; '.join(rest)}.\n", style="dim"))
    console.print(
        f"{STATUS_LEGEND}\nStored by: thalweg reproduce STUDY --save. Other data than the study's "
        "are at the end of its name (--data).",
        highlight=False,
    )


def _shorten_scale(scale: str) -> str:
    """
    >>> [_shorten_scale(scale) for scale in ("paper", "reduced, other data", "other data")]
    ['paper', 'reduced +', '+']
    """
    return scale.replace(", other data", " +").replace("other data", "+")


def _sum_up(found: Sequence[ExhibitStatus]) -> list[str]:
    tables = [each for each in found if each.cells]
    return [str(sum(getattr(each, name) for each in tables)) for name in ("cells", "run", "within")]


def _seeds(text: str | None) -> int | list[int] | None:
    if text is None:
        return None
    seeds = parse_seeds(text)
    return seeds if "," in text else len(seeds)


def _describe_progress(result: StudyResult) -> str:
    done = sum(cell.is_done for cell in result.cells)
    rounds = sum(len(cell.rows) for cell in result.cells if not cell.is_done)
    begun = f", and {rounds} rounds of other runs" if rounds else ""
    return f"{done} of {len(result.cells)} runs are done{begun}"


def _command(
    study: str,
    only: Sequence[str],
    seeds: str | None,
    scale: str,
    data: str | None,
    out: Path | None,
    engine: str,
    data_dir: Path | None,
) -> str:
    words = ["thalweg", "reproduce", study]
    words += ["--only", ",".join(only)] if only else []
    words += ["--seeds", seeds] if seeds is not None else []
    words += ["--scale", scale] if scale != "paper" else []
    words += ["--data", data] if data is not None else []
    words += ["--out", str(out)] if out is not None else []
    words += ["--engine", engine] if engine != "auto" else []
    words += ["--data-dir", str(data_dir)] if data_dir is not None else []
    return shlex.join(words)
