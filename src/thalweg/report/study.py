"""Run the missing cells of a study, read its results, and write its tables and its page."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from thalweg.core.errors import require
from thalweg.engine.cells import CellCallback, CellEvent, CellJob, is_done, run_cells
from thalweg.engine.ray.cluster import RayCluster, choose_cluster, get_num_workers
from thalweg.report.cells import Cell, metric_series
from thalweg.report.comparison import folder_name
from thalweg.report.render import write_report_file
from thalweg.report.study_cells import (
    Scale,
    StudyCell,
    check_data,
    missing_jobs,
    read_study_cells,
    select_seeds,
    study_cells,
    unique_jobs,
)
from thalweg.report.summary import Summary, summarise
from thalweg.scenarios.studies import (
    Study,
    find_study,
    replace_data,
    restrict_study,
    split_words,
)

T = TypeVar("T")

DEFAULT_FOLDERS = {"paper": Path("runs/reproduce"), "quick": Path("runs/reproduce-quick")}


@dataclass(frozen=True)
class Timing:
    """Time that one invocation took."""

    rounds: int
    seconds: float  # computing time of the rounds, summed over the cells
    wall_seconds: float  # time from start to end
    workers: int

    @property
    def speedup(self) -> float:
        """The average number of cells that ran at the same time."""
        return self.seconds / self.wall_seconds if self.wall_seconds > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class StudySpec:
    """A study with its options and its folder."""

    study: Study
    scale: Scale
    folder: Path  # for its tables and its page
    command: str  # that continues it
    part: tuple[str, ...] = ()  # the words of --only


@dataclass(frozen=True, kw_only=True)
class StudyResult(StudySpec):
    """The results of a study so far. Cells carry the labels of their row and column."""

    cells: Sequence[Cell]
    timings: tuple[Timing, ...] = ()

    def cells_of(self, column: str) -> list[Cell]:
        """The cells of a column, row by row."""
        order = {label: index for index, label in enumerate(self.study.row_labels)}
        mine = [cell for cell in self.cells if cell.scenario == column]
        return sorted(mine, key=lambda cell: order[cell.recipe])  # stable: seeds keep their order

    def is_first_with_same_runs(self, label: str) -> bool:
        """Whether a column is the first of those that show the same runs."""
        return self._columns_with_same_runs(label)[0] == label

    def is_last_with_same_runs(self, label: str) -> bool:
        """Whether a column is the last of those that show the same runs."""
        return self._columns_with_same_runs(label)[-1] == label

    def _columns_with_same_runs(self, label: str) -> list[str]:
        runs = {column.label: (column.scenario, column.overrides) for column in self.study.columns}
        return [other for other, of in runs.items() if of == runs[label]]

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
            column.label: [
                replace(s, accuracy_metric=self.study.metric_of(column)) for s in summaries
            ]
            for column, summaries in found.items()
        }


@dataclass(frozen=True, kw_only=True)
class StudyPlan(StudySpec):
    """The cells of a study, before anything runs."""

    cells: Sequence[StudyCell]
    shard: Shard | None = None  # the part of the cells that is run; None: all

    @property
    def jobs(self) -> list[CellJob]:
        """The jobs of the shard."""
        jobs = unique_jobs(self.cells)
        return jobs if self.shard is None else self.shard.select(jobs)

    @property
    def missing(self) -> list[CellJob]:
        """The jobs of the shard that are not done."""
        return [job for job in self.jobs if not is_done(job)]

    def count_missing(self) -> int:
        """Return the number of jobs of all shards that are not done."""
        return len(missing_jobs(self.cells))


class Shard(NamedTuple):
    """One of several parts of the cells of a study, each run by a command of its own."""

    number: int  # from 1
    total: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read a shard.

        >>> Shard.parse("2/3").select(["a", "b", "c", "d", "e"])
        ['b', 'e']
        """
        number, _, total = text.partition("/")
        is_valid = number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total)
        require(is_valid, f"shard={text}: expected I/N with I from 1 to N, such as 2/4.")
        return cls(int(number), int(total))

    def select(self, jobs: Sequence[T]) -> list[T]:
        """Return every N-th job, which does not depend on jobs that are done."""
        return list(jobs[self.number - 1 :: self.total])


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
    shard: str | None = None,
) -> StudyPlan:
    """Plan a study; raises an error for unknown names. Nothing is run or written."""
    part_of_cells = None if shard is None else Shard.parse(shard)
    require(scale in DEFAULT_FOLDERS, f"scale must be quick or paper, got {scale!r}.")
    study = find_study(study) if isinstance(study, str) else study
    study = study if data is None else replace_data(study, data)
    part = tuple(split_words(only, study))
    whole = select_seeds(restrict_study(study, part) if part else study, seeds, scale)
    root = DEFAULT_FOLDERS[scale] if out is None else Path(out)
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
        shard=part_of_cells,
    )


def reproduce(
    study: Study | str,
    *,
    only: Iterable[str] = (),
    seeds: int | Iterable[int] | None = None,
    scale: Scale = "paper",
    data: str | None = None,
    engine: str = "auto",
    address: str | None = None,
    num_gpus: float | None = None,
    workers: int | None = None,
    device: str = "auto",
    out: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    watch: CellCallback | None = None,
) -> StudyResult:
    """Run the missing cells of a study, and write its tables and its page.

    If a cell fails, the others continue, and the result shows the failure. An interrupted study is
    continued by the same call. With ``engine="ray"`` the cells are distributed to the nodes of the
    Ray cluster at `address`; `out` is then a folder that they share. `device` is that of
    `thalweg.run`.
    """
    cluster = choose_cluster(engine, address, num_gpus, workers)
    engine = "auto" if cluster else engine
    plan = plan_study(study, only=only, seeds=seeds, scale=scale, data=data, engine=engine, out=out)
    run_study(
        plan,
        workers=cluster or workers,
        device=device,
        data_dir=None if data_dir is None else Path(data_dir),
        watch=watch,
    )
    result = read_study(plan)
    write_study(result)
    return result


def run_study(
    plan: StudyPlan,
    *,
    workers: int | RayCluster | None = None,
    device: str = "auto",
    data_dir: Path | None = None,
    watch: CellCallback | None = None,
) -> Timing:
    """Run the missing cells after checking their data. The time is recorded even if interrupted."""
    todo = plan.missing
    check_data(todo, data_dir)
    began, rounds, seconds = time.perf_counter(), 0, 0.0
    num_workers = max(min(get_num_workers(workers), len(todo)), 1)

    def count(event: CellEvent) -> None:
        nonlocal rounds, seconds
        if event.row is not None:
            rounds += 1
            seconds += float(event.row["seconds"])
        if watch is not None:
            watch(event)

    def timing() -> Timing:
        return Timing(rounds, seconds, time.perf_counter() - began, num_workers)

    try:
        cluster_or_number = workers if isinstance(workers, RayCluster) else num_workers
        run_cells(todo, workers=cluster_or_number, data_dir=data_dir, watch=count, device=device)
    finally:
        if rounds:
            _append_timing(plan.folder, timing())
    return timing()


def read_study(plan: StudyPlan) -> StudyResult:
    """Read the results from the run folders, finished or not; nothing is run."""
    cells = read_study_cells(plan.study, plan.cells)
    return StudyResult(
        study=plan.study,
        scale=plan.scale,
        folder=plan.folder,
        command=plan.command,
        part=plan.part,
        cells=[*cells, *best_cells(plan.study, cells)],
        timings=_read_timings(plan.folder),
    )


def best_cells(study: Study, cells: Sequence[Cell]) -> list[Cell]:
    """For every row that is the best of others: per column and seed, the best run by validation.

    If some of the others have not finished, the best is not known yet.
    """
    best = []
    for row in study.rows:
        for column in study.columns:
            for seed in study.seeds if row.best_of else ():
                column_and_seed = (column.label, seed)
                mine = [
                    cell
                    for cell in cells
                    if (cell.scenario, cell.seed) == column_and_seed and cell.recipe in row.best_of
                ]
                if mine:
                    found = _best(mine, study.metric_of(column))
                    best.append(replace(found, recipe=row.label))
    return best


def _best(cells: Sequence[Cell], metric: str) -> Cell:
    for cell in cells:
        if not cell.is_done:
            why = f"{cell.recipe}, one of the candidates, is not done: {cell.reason or cell.status}"
            return replace(cell, reason=why)

    def get_validation_score(cell: Cell) -> float:
        values = metric_series(cell, f"validation_{metric}")
        return values[-1][1] if values else float("-inf")

    return max(cells, key=get_validation_score)


def write_study(result: StudyResult) -> dict[str, Path]:
    """Write page, Markdown and CSV, each atomically."""
    from thalweg.report.study_page import study_page
    from thalweg.report.study_table import study_csv, study_markdown

    texts = {
        "page": ("index.html", study_page(result)),
        "table": ("table.md", study_markdown(result)),
        "csv": ("table.csv", study_csv(result)),
    }
    for name, text in texts.values():
        write_report_file(result.folder / name, text.encode("utf-8"))
    return {what: result.folder / name for what, (name, _) in texts.items()}


def _append_timing(folder: Path, timing: Timing) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "timings.jsonl").open("a") as file:
        file.write(json.dumps(asdict(timing)) + "\n")


def _read_timings(folder: Path) -> tuple[Timing, ...]:
    """Read the times of earlier invocations; incomplete lines are ignored."""
    file = folder / "timings.jsonl"
    found = []
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            found.append(Timing(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return tuple(found)
