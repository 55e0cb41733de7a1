"""Progress of many cells: one bar over all rounds, with what is running and the time left."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from thalweg.cli.live import clock
from thalweg.core.errors import ConfigError
from thalweg.engine.any_plan import BaselinePlan
from thalweg.engine.cells import CellJob, CellNews, Watch
from thalweg.engine.folder import RunFolder
from thalweg.engine.machine import cores

LINE_EVERY_S = 60.0  # where there is no terminal, a sign of life between the ends of cells


def seeds_named(text: str) -> list[int]:
    """ "3" means three seeds, 0 to 2; "4,8" means those two, and "4," that one."""
    parts = [part.strip() for part in text.split(",")]
    try:
        numbers = [int(part) for part in parts if part]
    except ValueError:
        numbers = []
    if not numbers:
        raise ConfigError(f"--seeds {text}: expected a number of seeds, or a list 4,8,15.")
    if "," in text:
        return numbers
    if numbers[0] < 1:
        raise ConfigError(f"--seeds {text}: expected at least one seed.")
    return list(range(numbers[0]))


@dataclass
class Tally:
    """How far many cells have come."""

    jobs: Sequence[CellJob]
    workers: int
    rounds: dict[Path, int] = field(default_factory=dict)  # done, of cells that were begun
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

    def note(self, news: CellNews) -> None:
        folder = news.job.folder
        self.rounds[folder] = news.rounds_done
        if news.row is None:
            self.running.pop(folder, None)
            self.ended += 1
            self.failed += news.failure is not None
        else:
            self.running[folder] = news.job
            self.costs.setdefault(_problem(news.job), []).append(float(news.row["seconds"]))

    def seconds_left(self) -> float | None:
        """Rounds left, each at the price of its problem so far; a new problem at the mean price."""
        if not self.costs:
            return None
        prices = {name: sum(costs) / len(costs) for name, costs in self.costs.items()}
        usual = sum(prices.values()) / len(prices)
        left = sum(
            (job.plan.scenario.rounds - self.rounds.get(job.folder, 0))
            * prices.get(_problem(job), usual)
            for job in self.jobs
        )
        return left / max(min(self.workers, len(self.jobs) - self.ended), 1)

    def sentence(self) -> str:
        left = self.seconds_left()
        failed = f", {self.failed} failed" if self.failed else ""
        time_left = "" if left is None or self.ended == len(self.jobs) else f", {clock(left)} left"
        return f"{self.ended} of {len(self.jobs)} runs ended{failed}{time_left}"


def estimate(jobs: Sequence[CellJob], finished: Sequence[CellJob], workers: int) -> float | None:
    """Seconds that `jobs` may take, by what finished runs of the same problems took."""
    tally = Tally(jobs, workers)
    wanted = {_problem(job) for job in jobs}
    for job in finished:
        if _problem(job) in wanted:
            rows = RunFolder(job.folder).metrics()
            tally.costs.setdefault(_problem(job), []).extend(float(row["seconds"]) for row in rows)
    return tally.seconds_left() if wanted <= tally.costs.keys() else None


def _problem(job: CellJob) -> str:
    """What decides how long a round takes, nearly."""
    scenario = job.plan.scenario
    who = job.plan.baseline if isinstance(job.plan, BaselinePlan) else scenario.net
    return f"{scenario.data} {who} {scenario.world} {scenario.ticks} {scenario.capacity}"


@contextmanager
def watching_cells(
    jobs: Sequence[CellJob], console: Console, as_json: bool, workers: int | None = None
) -> Iterator[Watch | None]:
    """Overall progress in rounds, with the time left; plain lines where there is no terminal."""
    if as_json or not jobs:
        yield None
        return
    tally = Tally(jobs, workers or cores())
    if console.is_terminal:
        with _bar(tally, console) as show:
            yield show
        return
    said = time.monotonic()

    def say(news: CellNews) -> None:
        nonlocal said
        tally.note(news)
        if news.row is None:
            how = "ended" if news.failure is None else f"failed: {' '.join(news.failure.split())}"
            print(f"{_name(news.job)}: {how}; {tally.sentence()}", flush=True)
        elif time.monotonic() - said < LINE_EVERY_S:
            return
        else:
            print(f"{tally.done}/{tally.total} rounds; {tally.sentence()}", flush=True)
        said = time.monotonic()

    yield say


@contextmanager
def _bar(tally: Tally, console: Console) -> Iterator[Watch]:
    columns = (
        TextColumn("{task.completed:.0f}/{task.total:.0f} rounds"),
        BarColumn(bar_width=24, complete_style="cyan", finished_style="green"),
        TextColumn("{task.fields[said]}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=tally.total, completed=tally.done, said="starting")

        def show(news: CellNews) -> None:
            tally.note(news)
            accuracy = (news.row or {}).get("accuracy")
            known = "" if accuracy is None else f" {accuracy:.3f}"
            now = f"   {_name(news.job)}{known}"
            progress.update(task, completed=tally.done, said=tally.sentence() + now)
            if news.failure is not None:
                reason = " ".join(news.failure.split())
                said = f"{_name(news.job)} failed: {reason}"
                progress.console.print(said, markup=False, highlight=False, style="yellow")

        yield show


def _name(job: CellJob) -> str:
    return f"{job.recipe}, seed {job.plan.seed}"
