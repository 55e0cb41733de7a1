"""Progress: a bar on a terminal, plain lines elsewhere, JSON lines for programs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from thalweg.engine.loop import Progress as RoundProgress
from thalweg.engine.loop import ProgressCallback
from thalweg.engine.plan import AnyPlan


@contextmanager
def show_progress(plan: AnyPlan, console: Console, as_json: bool) -> Iterator[ProgressCallback]:
    """Yield a callback for every round of the run."""
    if as_json:
        yield lambda event: print_json(event.row)
    elif not console.is_terminal:
        yield _print_line
    else:
        columns = (
            TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(),
            TextColumn("{task.fields[text]}"),
        )
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("", total=plan.scenario.rounds, text="starting")
            accuracy = float("nan")

            def show(event: RoundProgress) -> None:
                nonlocal accuracy
                accuracy = _accuracy(event.row, accuracy)
                text = f"{_clients(event.row)}   {_score(event.row, accuracy, 3)}   {_rate(event)}"
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


def _print_line(event: RoundProgress) -> None:
    """Print a line at every evaluation, for logs."""
    scenario = event.plan.scenario
    is_due = (
        event.rounds_done % scenario.evaluate_every == 0 and "prequential_accuracy" in event.row
    )
    if "accuracy" in event.row or is_due:
        print(
            f"round {event.rounds_done}/{scenario.rounds}  {_clients(event.row)}  "
            f"{_score(event.row, _accuracy(event.row), 4)}  {_rate(event)}",
            flush=True,
        )


def _accuracy(row: Mapping[str, Any], else_: float = float("nan")) -> float:
    """Accuracy on the labels of the session's members, if there are sessions."""
    accuracy: float = row.get("session_accuracy", row.get("accuracy", else_))
    return accuracy


def _score(row: Mapping[str, Any], accuracy: float, digits: int) -> str:
    """The test accuracy, or the prequential accuracy if there is no test set."""
    if math.isnan(accuracy) and "prequential_accuracy" in row:
        return f"test-then-train {row['prequential_accuracy']:.{digits}f}"
    return f"accuracy {accuracy:.{digits}f}"


def _clients(row: Mapping[str, Any]) -> str:
    """Number of participating clients, and the session."""
    session = f"session {row['session']}  " if "session" in row else ""
    return f"{session}{row['cohort']} clients"


def _rate(event: RoundProgress) -> str:
    seconds = max(event.seconds_now / max(event.rounds_now, 1), 1e-9)
    left = seconds * (event.plan.scenario.rounds - event.rounds_done)
    rate = f"{1 / seconds:.1f} rounds/s" if seconds < 2 else f"{seconds:.0f} s/round"
    return f"{rate}  {format_duration(left)} left"
