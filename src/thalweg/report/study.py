"""Run what is missing of a study, read what is there, write its tables and its page."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from thalweg.core.errors import require
from thalweg.engine.cells import CellJob, CellNews, Watch, run_cells
from thalweg.engine.machine import cores
from thalweg.report.cells import Cell, series
from thalweg.report.comparison import folder_name
from thalweg.report.files import write_whole
from thalweg.report.shown import as_shown
from thalweg.report.study_jobs import (
    Scale,
    StudyCell,
    asked,
    check_data,
    jobs_of,
    missing_jobs,
    study_cells,
)
from thalweg.report.summary import Summary, summarise
from thalweg.scenarios.studies import Column, Study, on_data, restricted, study_named, words_in
from thalweg.scenarios.studies.base import LESS_IS_BETTER

OUT = {"paper": Path("runs/reproduce"), "quick": Path("runs/reproduce-quick")}


@dataclass(frozen=True)
class Effort:
    """What one invocation did."""

    rounds: int
    seconds: float  # that the rounds took, summed over the cells
    wall: float  # seconds from start to end
    workers: int

    @property
    def speedup(self) -> float:
        """How many cells ran at the same time, on average."""
        return self.seconds / self.wall if self.wall > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class AskedStudy:
    """A study as it is asked for, and where everything goes."""

    study: Study
    scale: Scale
    folder: Path  # of its tables and its page
    command: str  # that goes on with it
    part: tuple[str, ...] = ()  # the words of --only


@dataclass(frozen=True, kw_only=True)
class StudyResult(AskedStudy):
    """What there is of a study. Cells carry the labels of their row and column."""

    cells: Sequence[Cell]
    efforts: tuple[Effort, ...] = ()

    def cells_of(self, column: str) -> list[Cell]:
        """The cells of a column, row by row."""
        order = {label: place for place, label in enumerate(self.study.row_labels)}
        mine = [cell for cell in self.cells if cell.scenario == column]
        return sorted(mine, key=lambda cell: order[cell.recipe])  # stable: seeds keep their order

    def shows_runs_first(self, label: str) -> bool:
        """Of columns that look at the same runs, is it the first one?"""
        runs = {column.label: (column.scenario, column.sets) for column in self.study.columns}
        return next(other for other, of in runs.items() if of == runs[label]) == label

    def summaries(self) -> dict[str, list[Summary]]:
        """One summary per row and column, by column."""
        against = {row.label: self.study.against(row) for row in self.study.rows}
        found = {
            column: summarise(
                self.cells_of(column.label),
                {row: n for (row, of), n in self.study.published.items() if of == column.label},
                against,
            )
            for column in self.study.columns
        }
        return {
            column.label: [replace(s, is_inverted=self._is_inverted(column)) for s in summaries]
            for column, summaries in found.items()
        }

    def _is_inverted(self, column: Column) -> bool:
        return self.study.metric_of(column) in LESS_IS_BETTER


@dataclass(frozen=True, kw_only=True)
class StudyPlan(AskedStudy):
    """The cells of a study, before anything runs."""

    cells: Sequence[StudyCell]

    @property
    def jobs(self) -> list[CellJob]:
        return jobs_of(self.cells)

    @property
    def missing(self) -> list[CellJob]:
        return missing_jobs(self.cells)


def plan_study(
    study: Study | str,
    *,
    only: Iterable[str] = (),
    seeds: int | Iterable[int] | None = None,
    scale: Scale = "paper",
    data: str | None = None,
    engine: str = "auto",
    out: str | os.PathLike[str] | None = None,
    command: str = "",
) -> StudyPlan:
    """Look everything up and refuse what is unknown; nothing is run or written."""
    require(scale in OUT, f"scale must be quick or paper, got {scale!r}.")
    study = study_named(study) if isinstance(study, str) else study
    study = study if data is None else on_data(study, data)
    part = tuple(words_in(only, study))
    whole = asked(restricted(study, part) if part else study, seeds, scale)
    root = OUT[scale] if out is None else Path(out)
    folder = root / study.name
    if part:
        folder = folder / f"only-{folder_name('+'.join(part))}"
    cells = study_cells(whole, root, scale=scale, engine=engine)
    return StudyPlan(
        study=whole,
        scale=scale,
        folder=folder,
        command=command or f"thalweg reproduce {study.name}",
        part=part,
        cells=cells,
    )


def reproduce(
    study: Study | str,
    *,
    only: Iterable[str] = (),
    seeds: int | Iterable[int] | None = None,
    scale: Scale = "paper",
    data: str | None = None,
    engine: str = "auto",
    workers: int | None = None,
    out: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    watch: Watch | None = None,
) -> StudyResult:
    """Run what is missing of a study, and write its tables and its page.

    A cell that fails is shown as such in the result; the others go on. Stopped at any moment, the
    same call goes on.
    """
    plan = plan_study(study, only=only, seeds=seeds, scale=scale, data=data, engine=engine, out=out)
    run_study(
        plan,
        workers=workers,
        data_dir=None if data_dir is None else Path(data_dir),
        watch=watch,
    )
    result = read_study(plan)
    write_study(result)
    return result


def run_study(
    plan: StudyPlan,
    *,
    workers: int | None = None,
    data_dir: Path | None = None,
    watch: Watch | None = None,
) -> Effort:
    """Run the missing cells, data checked first. What it took is noted also if it is interrupted."""
    todo = plan.missing
    check_data(todo, data_dir)
    began, rounds, seconds = time.perf_counter(), 0, 0.0
    workers = max(min(workers or cores(), len(todo)), 1)

    def count(news: CellNews) -> None:
        nonlocal rounds, seconds
        if news.row is not None:
            rounds += 1
            seconds += float(news.row["seconds"])
        if watch is not None:
            watch(news)

    def effort() -> Effort:
        return Effort(rounds, seconds, time.perf_counter() - began, workers)

    try:
        run_cells(todo, workers=workers, data_dir=data_dir, watch=count)
    finally:
        if rounds:
            _note(plan.folder, effort())
    return effort()


def read_study(plan: StudyPlan) -> StudyResult:
    """What the folders say, finished or not; nothing is run."""
    cells = [as_shown(plan.study, cell) for cell in plan.cells]
    return StudyResult(
        study=plan.study,
        scale=plan.scale,
        folder=plan.folder,
        command=plan.command,
        part=plan.part,
        cells=[*cells, *best_cells(plan.study, cells)],
        efforts=_efforts(plan.folder),
    )


def best_cells(study: Study, cells: Sequence[Cell]) -> list[Cell]:
    """For every row that is the best of others: per column and seed, the run that validates best.

    If some of them have not finished, the best is not known yet.
    """
    best = []
    for row in study.rows:
        for column in study.columns:
            for seed in study.seeds if row.best_of else ():
                place = (column.label, seed)
                mine = [
                    cell
                    for cell in cells
                    if (cell.scenario, cell.seed) == place and cell.recipe in row.best_of
                ]
                if mine:
                    found = _best(mine, study.metric_of(column))
                    best.append(replace(found, recipe=row.label))
    return best


def _best(cells: Sequence[Cell], metric: str) -> Cell:
    for cell in cells:
        if not cell.is_done:
            why = f"{cell.recipe} is among those to choose from: {cell.reason or cell.status}"
            return replace(cell, reason=why)

    def validated(cell: Cell) -> float:
        values = series(cell, f"validation_{metric}")
        return values[-1][1] if values else float("-inf")

    return max(cells, key=validated)


def write_study(result: StudyResult) -> dict[str, Path]:
    """Page, Markdown and CSV, each whole or not at all."""
    from thalweg.report.study_page import study_page
    from thalweg.report.study_table import study_csv, study_markdown

    texts = {
        "page": ("index.html", study_page(result)),
        "table": ("table.md", study_markdown(result)),
        "csv": ("table.csv", study_csv(result)),
    }
    for name, text in texts.values():
        write_whole(result.folder / name, text.encode("utf-8"))
    return {what: result.folder / name for what, (name, _) in texts.items()}


def _note(folder: Path, effort: Effort) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "efforts.jsonl").open("a") as file:
        file.write(json.dumps(asdict(effort)) + "\n")


def _efforts(folder: Path) -> tuple[Effort, ...]:
    """What earlier invocations noted; a line that is not whole is left out."""
    file = folder / "efforts.jsonl"
    found = []
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            found.append(Effort(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return tuple(found)
