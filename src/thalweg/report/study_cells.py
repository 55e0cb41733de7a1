"""The cells of a study: their plans, folders and data, and how a column reads a finished run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

from thalweg.core.errors import ConfigError, DataError
from thalweg.core.metrics import METRICS, is_measured
from thalweg.data import check_available
from thalweg.engine.cells import CellJob, is_done
from thalweg.engine.plan import AnyPlan, get_method, make_any_plan, split_overrides
from thalweg.evaluation import (
    BEST_ROUND_METRICS,
    add_best_round,
    add_step_accuracy,
    add_task_metrics,
    add_two_step_accuracy,
    split_by_drift,
    take_until_crossing,
    take_until_transition,
)
from thalweg.report.cells import Cell, replace_accuracy
from thalweg.report.comparison import cell_command, folder_name, read_cell, recipe_parts
from thalweg.scenarios.studies import Column, Row, Study
from thalweg.scenarios.studies.base import TASK_METRICS

Scale = Literal["quick", "paper"]
QUICK_SHARE = 10  # quick runs a tenth of the rounds
MIN_QUICK_ROUNDS = 5
AVERAGED = {"mean_client_accuracy": "client_accuracy"}  # metrics that are means over the rounds
Rows = Sequence[Mapping[str, Any]]


class StudyCell(NamedTuple):
    """One entry of the table with one seed. Several entries may share a job."""

    row: Row
    column: Column
    job: CellJob


def select_seeds(study: Study, seeds: int | Iterable[int] | None, scale: Scale) -> Study:
    """The study with other seeds: a number of seeds or a list; by default one seed if quick.

    If the number is larger than the study's, seeds continue after its last one.
    """
    if seeds is None:
        return replace(study, seeds=study.seeds[:1]) if scale == "quick" else study
    if isinstance(seeds, int):
        after = max(study.seeds) + 1
        more = range(after, after + max(seeds - len(study.seeds), 0))
        return replace(study, seeds=(*study.seeds[:seeds], *more))
    return replace(study, seeds=tuple(seeds))


def study_cells(
    study: Study, folder: Path, *, scale: Scale = "paper", engine: str = "auto"
) -> list[StudyCell]:
    """All cells, first seeds first, so that an interrupted study is a whole table with fewer seeds.

    Raises an error for unknown names. The folder of a cell is named after its plan, without
    overrides that change nothing, so that tables share the cells they have in common.
    """
    cells = []
    made: dict[tuple[object, ...], CellJob] = {}  # columns may show the same runs
    for column in study.columns:
        for row in study.rows_of(column):
            if row.best_of:
                continue
            quick = (*study.quick, *row.quick)
            recipe = study.recipe_of(row, column)
            key = (recipe, quick, column.scenario, column.overrides)
            if key not in made:
                made[key] = _job(row, column, recipe, folder, scale, engine, quick)
            job = replace(made[key], recipe=f"{row.label} on {column.label}")
            cells.append((row, column, job))
    return [
        StudyCell(row, column, _with_seed(job, seed))
        for seed in study.seeds
        for row, column, job in cells
        if seed in study.seeds_of(row)
    ]


def unique_jobs(cells: Sequence[StudyCell]) -> list[CellJob]:
    """The jobs of some cells, each once, in order."""
    return list({cell.job.folder: cell.job for cell in cells}.values())


def missing_jobs(cells: Sequence[StudyCell]) -> list[CellJob]:
    return [job for job in unique_jobs(cells) if not is_done(job)]


def check_data(jobs: Sequence[CellJob], data_dir: Path | None) -> None:
    """Check before anything runs that all data are available; one error names all missing data."""
    users: dict[str, list[AnyPlan]] = {}
    for job in jobs:
        users.setdefault(str(job.plan.scenario.data), []).append(job.plan)
    problems = []
    for plans in users.values():
        try:
            check_available(plans[0].scenario.data, data_dir, plans[0].seed)
        except DataError as error:
            names = ", ".join(dict.fromkeys(plan.scenario.name for plan in plans))
            problems.append(f"For {names}:\n{error}")
    if problems:
        raise DataError(
            "data are missing, so nothing was run. Provide them, or select other columns with "
            "--only.\n\n" + "\n\n".join(problems)
        )


def _job(
    row: Row,
    column: Column,
    recipe: str,
    folder: Path,
    scale: Scale,
    engine: str,
    quick: Sequence[str] = (),
) -> CellJob:
    """The job with seed 0; `_with_seed` makes the others."""
    name, *changes = recipe_parts(recipe)
    sets = [*changes, *column.overrides]
    plan = make_any_plan(name, column.scenario, engine=engine, overrides=sets)
    if scale == "quick":
        rounds = max(MIN_QUICK_ROUNDS, plan.scenario.rounds // QUICK_SHARE)
        short = list(quick) or [f"rounds={rounds}"]
        changed = {each.partition("=")[0] for each in short}
        sets = [each for each in sets if each.partition("=")[0] not in changed] + short
        plan = make_any_plan(name, column.scenario, engine=engine, overrides=sets)
    sets = _drop_redundant_sets(plan, name, column.scenario, sets, engine)
    for_recipe, for_scenario = split_overrides(get_method(plan), sets)
    parent = folder / folder_name(",".join([column.scenario, *for_scenario]))
    return CellJob(
        recipe=f"{row.label} on {column.label}",
        plan=plan,
        folder=parent / folder_name(",".join([name, *for_recipe])),
        command=cell_command(plan, name, column.scenario, sets=sets, engine=engine),
    )


def _with_seed(job: CellJob, seed: int) -> CellJob:
    return replace(
        job,
        plan=replace(job.plan, seed=seed),
        folder=job.folder / f"seed-{seed}",
        command=job.command.replace("--seed 0", f"--seed {seed}", 1),
    )


def _drop_redundant_sets(
    plan: AnyPlan, recipe: str, scenario: str, sets: Sequence[str], engine: str
) -> list[str]:
    """The overrides that change the plan."""
    kept = list(sets)
    for each in sets:
        fewer = [other for other in kept if other is not each]
        try:
            if make_any_plan(recipe, scenario, engine=engine, overrides=fewer) == plan:
                kept = fewer
        except ConfigError:  # a later change needs this one
            continue
    return kept


def read_study_cells(study: Study, study_cells: Sequence[StudyCell]) -> list[Cell]:
    """Read the runs of all entries; a run that several entries show is read once."""
    runs: dict[Path, Cell] = {}
    for each in study_cells:
        if each.job.folder not in runs:
            runs[each.job.folder] = read_cell(each.job)
    return [read_study_cell(study, each, runs[each.job.folder]) for each in study_cells]


def read_study_cell(study: Study, study_cell: StudyCell, run: Cell | None = None) -> Cell:
    """Read a run as one entry of a study sees it: until the column's moment, with its metric.

    The metric of the column replaces the accuracy. Pass the `run` if it was read before.
    """
    cell = run or read_cell(study_cell.job)
    column = study_cell.column
    metric = study.metric_of(column)
    rows = select_rows(cell.rows, column, metric)
    if metric == "step_accuracy":
        rows = add_step_accuracy(rows)
    elif metric == "two_step_accuracy":
        rows = add_two_step_accuracy(rows, column.assignment)
    elif metric in BEST_ROUND_METRICS:
        rows = add_best_round(rows)
    elif metric in TASK_METRICS:
        rows = add_task_metrics(rows, column.assignment, column.task)
    if metric in ("prequential_accuracy", "prequential_mae"):  # used if there is no other headline
        rows = [{**replace_accuracy(row, None), "mae": None} for row in rows]
    elif metric in ("mae", "client_mae"):
        rows = [{**row, "mae": row.get(metric)} for row in rows]
    elif METRICS[metric].over_rounds == "mean":
        rows = _replace_by_running_mean(rows, column, AVERAGED.get(metric, metric))
    elif METRICS[metric].over_rounds == "sum":
        rows = _replace_by_running_sum(rows, metric)
    elif metric not in ("accuracy", "client_accuracy"):
        rows = [replace_accuracy(row, _value(row, column, metric)) for row in rows]
    elif metric != "accuracy" or column.session is not None:
        rows = [{**row, "accuracy": _value(row, column, metric)} for row in rows]
    has_moment = column.until is not None and _has(rows, "round", column.until)
    if len(rows) < len(cell.rows) or has_moment:  # later rounds change nothing
        alarms = cell.alarms if len(rows) == len(cell.rows) else None  # alarms are about whole runs
        cell = replace(cell, status="done", reason="", alarms=alarms)
    if cell.is_done and column.session is not None and not _has(rows, "session", column.session):
        reason = f"its {len(cell.rows)} rounds have no session {column.session}"
        cell = replace(cell, status="failed", reason=reason)
    num_steps = len(split_by_drift(rows)) if column.step is not None else 0
    if cell.is_done and num_steps < (column.step or 0):
        reason = f"its {len(cell.rows)} rounds have {num_steps} steps, not {column.step}"
        cell = replace(cell, status="failed", reason=reason)
    if cell.is_done and column.task and all(row.get("accuracy") is None for row in rows):
        reason = f"its metrics have no task {column.task!r}"
        cell = replace(cell, status="failed", reason=reason)
    rows = [row for row in rows if row["round"] > (column.after or 0)]
    return replace(
        cell,
        rows=rows,
        recipe=study_cell.row.label,
        scenario=column.label,
        is_time_ordered=False,  # the column names its metric
        is_deterministic=False,  # a study runs all its seeds
    )


def select_rows(rows: Rows, column: Column, metric: str) -> Rows:
    """The rounds up to the moment that a column shows."""
    if column.until is not None:
        rows = [row for row in rows if row["round"] <= column.until]
    if column.step is not None:
        rows = [row for step in split_by_drift(rows)[: column.step] for row in step]
    if column.session is None:
        return rows
    if metric == "transition_accuracy":
        return take_until_transition(rows, column.session)
    if metric == "crossing_accuracy":
        return take_until_crossing(rows, column.session)
    later = (index for index, row in enumerate(rows) if row.get("session", 0) > column.session)
    return rows[: next(later, len(rows))]


def _replace_by_running_mean(rows: Rows, column: Column, metric: str) -> Rows:
    """Replace the accuracy of each round by the mean of the metric over the rounds until then."""
    found, values = [], []
    for row in rows:
        if is_measured(row.get(metric)) and row["round"] > (column.after or 0):
            values.append(float(row[metric]))
        found.append(replace_accuracy(row, fmean(values) if values else None))
    return found


def _replace_by_running_sum(rows: Rows, metric: str) -> Rows:
    """Replace the accuracy of each round by the sum of the metric over the rounds until then."""
    declared = METRICS[metric]
    values = [declared.aggregate([row]) for row in rows]
    sums = accumulate(value or 0.0 for value in values)
    return [
        replace_accuracy(row, None if value is None else total)
        for row, value, total in zip(rows, values, sums, strict=True)
    ]


def _value(row: Mapping[str, Any], column: Column, metric: str) -> float | None:
    """The value of the metric in a round; None in other sessions."""
    is_other = column.session is not None and row.get("session") != column.session
    return None if is_other else row.get(metric)


def _has(rows: Rows, name: str, value: int) -> bool:
    return any(row.get(name) == value for row in rows)
