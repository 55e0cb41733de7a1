"""Progress of many runs: one bar over all rounds, with the running jobs and the time left."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from thalweg.cli.progress import estimate_round_seconds, format_duration
from thalweg.core.metrics import choose_headline
from thalweg.engine.cells import CellCallback, CellEvent, CellJob
from thalweg.engine.plan import BaselinePlan
from thalweg.engine.processes import count_cores
from thalweg.engine.run_folder import RunFolder

LINE_EVERY_S = 60.0  # without a terminal: seconds between two progress lines


@dataclass
class CellProgress:
    """Progress of many runs."""

    jobs: Sequence[CellJob]
    workers: int
    rounds: dict[Path, int] = field(default_factory=dict)  # finished rounds of started runs
    running: dict[Path, CellJob] = field(default_factory=dict)
    ended: int = 0
    failed: int = 0
    costs: dict[str, list[float]] = field(default_factory=dict)  # seconds per round, by problem

    def __post_init__(self) -> None:
        for job in self.jobs:
            if before := len(RunFolder(job.folder).metrics()):
                self.rounds[job.folder] = min(before, job.plan.scenario.rounds)

    @property
    def total(self) -> int:
        return sum(job.plan.scenario.rounds for job in self.jobs)

    @property
    def done(self) -> int:
        return sum(self.rounds.values())

    def record(self, event: CellEvent) -> None:
        folder = event.job.folder
        self.rounds[folder] = event.rounds_done
        if event.row is None:
            self.running.pop(folder, None)
            self.ended += 1
            self.failed += event.failure is not None
        else:
            self.running[folder] = event.job
            self.costs.setdefault(_cost_key(event.job), []).append(float(event.row["seconds"]))

    def seconds_left(self) -> float | None:
        """Estimated time left: remaining rounds at the median cost of recent rounds like them."""
        if not self.costs:
            return None
        prices = {name: estimate_round_seconds(costs) for name, costs in self.costs.items()}
        usual = median(prices.values())
        left = sum(
            (job.plan.scenario.rounds - self.rounds.get(job.folder, 0))
            * prices.get(_cost_key(job), usual)
            for job in self.jobs
        )
        return left / max(min(self.workers, len(self.jobs) - self.ended), 1)

    def format_summary(self) -> str:
        left = self.seconds_left()
        failed = f", {self.failed} failed" if self.failed else ""
        time_left = (
            ""
            if left is None or self.ended == len(self.jobs)
            else f", {format_duration(left)} left"
        )
        return f"{self.ended} of {len(self.jobs)} runs ended{failed}{time_left}"


def estimate_seconds(
    jobs: Sequence[CellJob], finished: Sequence[CellJob], workers: int
) -> float | None:
    """Estimated seconds for `jobs`, from finished runs of the same problems."""
    cell_progress = CellProgress(jobs, workers)
    wanted = {_cost_key(job) for job in jobs}
    for job in finished:
        if _cost_key(job) in wanted:
            rows = RunFolder(job.folder).metrics()
            cell_progress.costs.setdefault(_cost_key(job), []).extend(
                float(row["seconds"]) for row in rows if "seconds" in row
            )
    return cell_progress.seconds_left() if wanted <= cell_progress.costs.keys() else None


def _cost_key(job: CellJob) -> str:
    """The parameters that determine the cost of a round."""
    scenario = job.plan.scenario
    who = job.plan.baseline if isinstance(job.plan, BaselinePlan) else scenario.net
    return f"{scenario.data} {who} {scenario.world} {scenario.ticks} {scenario.capacity}"


@contextmanager
def show_cell_progress(
    jobs: Sequence[CellJob],
    console: Console,
    as_json: bool,
    workers: int | None = None,
    is_time_ordered: bool = False,
) -> Iterator[CellCallback | None]:
    """Show the overall progress in rounds with the time left; plain lines without a terminal."""
    if as_json or not jobs:
        yield None
        return
    cell_progress = CellProgress(jobs, workers or count_cores())
    if console.is_terminal:
        with _bar(cell_progress, console, is_time_ordered) as show:
            yield show
        return
    last_line = time.monotonic()

    def show_event(event: CellEvent) -> None:
        nonlocal last_line
        cell_progress.record(event)
        if event.row is None:
            how = "ended" if event.failure is None else f"failed: {' '.join(event.failure.split())}"
            print(f"{_job_name(event.job)}: {how}; {cell_progress.format_summary()}", flush=True)
        elif time.monotonic() - last_line < LINE_EVERY_S:
            return
        else:
            print(
                f"{cell_progress.done}/{cell_progress.total} rounds; "
                f"{cell_progress.format_summary()}",
                flush=True,
            )
        last_line = time.monotonic()

    yield show_event


@contextmanager
def _bar(
    cell_progress: CellProgress, console: Console, is_time_ordered: bool
) -> Iterator[CellCallback]:
    columns = (
        TextColumn("{task.completed:.0f}/{task.total:.0f} rounds"),
        BarColumn(bar_width=24, complete_style="cyan", finished_style="green"),
        TextColumn("{task.fields[text]}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(
            "", total=cell_progress.total, completed=cell_progress.done, text="starting"
        )

        def show(event: CellEvent) -> None:
            cell_progress.record(event)
            row = event.row or {}
            requested = event.job.plan.scenario.headline or ""
            default = choose_headline(row.keys(), is_time_ordered=is_time_ordered)
            score = row.get(requested if requested in row else default)
            known = "" if score is None else f" {score:.3f}"
            now = f"   {_job_name(event.job)}{known}"
            progress.update(
                task, completed=cell_progress.done, text=cell_progress.format_summary() + now
            )
            if event.failure is not None:
                reason = " ".join(event.failure.split())
                text = f"{_job_name(event.job)} failed: {reason}"
                progress.console.print(text, markup=False, highlight=False, style="yellow")

        yield show


def _job_name(job: CellJob) -> str:
    return f"{job.recipe}, seed {job.plan.seed}"
