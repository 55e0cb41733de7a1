"""The cells of a study before anything runs: their plans, their folders, and the data they need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

from thalweg.core.errors import ConfigError, DataError
from thalweg.data import check_available
from thalweg.engine.any_plan import AnyPlan, get_method, make_any_plan
from thalweg.engine.cells import CellJob, is_done
from thalweg.engine.plan import split_overrides
from thalweg.report.comparison import cell_command, folder_name, recipe_parts
from thalweg.scenarios.studies import Column, Row, Study

Scale = Literal["quick", "paper"]
QUICK_SHARE = 10  # quick runs a tenth of the rounds
MIN_QUICK_ROUNDS = 5


class StudyCell(NamedTuple):
    """One place of the table with one seed. Several places may share a job."""

    row: Row
    column: Column
    job: CellJob


def select_seeds(study: Study, seeds: int | Iterable[int] | None, scale: Scale) -> Study:
    """The study with the seeds that are asked for: so many, or these; quick: one unless asked.

    More seeds than the study has count on from its last one.
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
    """All cells, first seeds first, so that an interrupted study is a whole table of fewer seeds.

    Bad names are refused here. A cell's folder follows from its plan's spelling without what
    changes nothing, so that the tables share the cells they have in common.
    """
    places = []
    made: dict[tuple[object, ...], CellJob] = {}  # columns may look at the same runs
    for column in study.columns:
        for row in study.rows_of(column):
            if row.best_of:
                continue
            quick = (*study.quick, *row.quick)
            key = (row.recipe_spec, quick, column.scenario, column.overrides)
            if key not in made:
                made[key] = _job(row, column, folder, scale, engine, quick)
            job = replace(made[key], recipe=f"{row.label} on {column.label}")
            places.append((row, column, job))
    return [
        StudyCell(row, column, _with_seed(job, seed))
        for seed in study.seeds
        for row, column, job in places
    ]


def unique_jobs(cells: Sequence[StudyCell]) -> list[CellJob]:
    """What there is to run, each cell once, in order."""
    return list({cell.job.folder: cell.job for cell in cells}.values())


def missing_jobs(cells: Sequence[StudyCell]) -> list[CellJob]:
    return [job for job in unique_jobs(cells) if not is_done(job)]


def check_data(jobs: Sequence[CellJob], data_dir: Path | None) -> None:
    """Before anything runs: are all data here? Else one error names all that are not."""
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
            "data are missing, so nothing was run. Get them, or leave them out with --only.\n\n"
            + "\n\n".join(problems)
        )


def _job(
    row: Row, column: Column, folder: Path, scale: Scale, engine: str, quick: Sequence[str] = ()
) -> CellJob:
    """The cell of seed 0; `_with_seed` gives the others."""
    name, *changes = recipe_parts(row.recipe_spec)
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
    place = folder / folder_name(",".join([column.scenario, *for_scenario]))
    return CellJob(
        recipe=f"{row.label} on {column.label}",
        plan=plan,
        folder=place / folder_name(",".join([name, *for_recipe])),
        command=cell_command(plan, name, column.scenario, sets, None, engine),
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
    """The changes without which the plan would be another one."""
    kept = list(sets)
    for each in sets:
        fewer = [other for other in kept if other is not each]
        try:
            if make_any_plan(recipe, scenario, engine=engine, overrides=fewer) == plan:
                kept = fewer
        except ConfigError:  # a later change needs this one
            continue
    return kept
