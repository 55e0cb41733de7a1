"""Progress: a bar on a terminal, plain lines elsewhere, JSON lines for programs."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from thalweg.core.metrics import HEADLINES, is_measured
from thalweg.engine.loop import Progress as RoundProgress
from thalweg.engine.loop import ProgressCallback
from thalweg.engine.plan import AnyPlan

RECENT_ROUNDS = 25  # by which the time left is estimated
PREQUENTIAL = ("prequential_accuracy", "prequential_mae")


@contextmanager
def show_progress(
    plan: AnyPlan, console: Console, as_json: bool, is_time_ordered: bool = False
) -> Iterator[ProgressCallback]:
    """Yield a callback for every round of the run.

    It shows the headline metric of the scenario; by default the prequential metric on time-ordered
    data, otherwise that of the test set.
    """
    recent: deque[float] = deque(maxlen=RECENT_ROUNDS)
    requested = plan.scenario.headline
    is_on_arrival = requested in PREQUENTIAL if requested else is_time_ordered
    if as_json:
        yield lambda event: print_json(event.row)
    elif not console.is_terminal:
        yield lambda event: _print_line(event, recent, is_on_arrival)
    else:
        columns = (
            TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(),
            TextColumn("{task.fields[text]}"),
        )
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("", total=plan.scenario.rounds, text="starting")
            last: dict[str, float] = {}

            def show(event: RoundProgress) -> None:
                recent.append(float(event.row["seconds"]))
                last.update({} if is_on_arrival else _get_test_score(event.row, requested))
                rate = _rate(event, recent)
                text = f"{_clients(event.row)}   {_score(event.row, last, 3)}   {rate}"
                progress.update(task, completed=event.rounds_done, text=text)

            yield show


def print_json(row: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(dict(row)) + "\n")
    sys.stdout.flush()


def format_duration(seconds: float) -> str:
    """Format a duration in seconds for display.

    >>> format_duration(83.4), format_duration(3683)
    ('1:23', '1:01:23')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def estimate_round_seconds(seconds: Iterable[float]) -> float:
    """Estimate the time of a round: the median of recent ones, so that single rounds do not count.

    >>> estimate_round_seconds([9.0, 1.0, 1.0, 1.5, 1.0])
    1.0
    """
    return max(median(list(seconds)[-RECENT_ROUNDS:]), 1e-9)


def _print_line(event: RoundProgress, recent: deque[float], is_on_arrival: bool) -> None:
    """Print a line at every evaluation, for logs."""
    recent.append(float(event.row["seconds"]))
    scenario = event.plan.scenario
    has_tested = any(name in event.row for name in PREQUENTIAL)
    is_due = event.rounds_done % scenario.evaluate_every == 0 and has_tested
    tested = _get_test_score(event.row, scenario.headline)
    if tested or is_due:
        shown = {} if is_on_arrival and has_tested else tested
        print(
            f"round {event.rounds_done}/{scenario.rounds}  {_clients(event.row)}  "
            f"{_score(event.row, shown, 4)}  {_rate(event, recent)}",
            flush=True,
        )


def _get_test_score(row: Mapping[str, Any], requested: str | None) -> dict[str, float]:
    """The main metric on the test set, by its name; empty if the round was not evaluated.

    `requested` is the headline of the scenario. With sessions, the accuracy is that on the labels
    of the session's members, and the error is that on their samples.
    """
    if requested not in (None, *HEADLINES) and is_measured(row.get(requested)):
        return {str(requested).replace("_", " "): row[requested]}
    if "accuracy" in row or "session_accuracy" in row:
        return {"accuracy": row.get("session_accuracy", row.get("accuracy"))}
    return {"MAE": row.get("session_mae", row["mae"])} if "mae" in row else {}


def _score(row: Mapping[str, Any], tested: Mapping[str, float], digits: int) -> str:
    """The main metric on the test set, or on arriving samples if there is no test set."""
    for name, value in tested.items():
        return f"{name} {value:.{digits}f}"
    for name in PREQUENTIAL:
        if name in row:
            return f"test-then-train {row[name]:.{digits}f}"
    return "no score yet"


def _clients(row: Mapping[str, Any]) -> str:
    """Number of participating clients, and the session."""
    session = f"session {row['session']}  " if "session" in row else ""
    return f"{session}{row['cohort']} clients"


def _rate(event: RoundProgress, recent: deque[float]) -> str:
    seconds = estimate_round_seconds(recent)
    left = seconds * (event.plan.scenario.rounds - event.rounds_done)
    rate = f"{1 / seconds:.1f} rounds/s" if seconds < 2 else f"{seconds:.0f} s/round"
    return f"{rate}  {format_duration(left)} left"
