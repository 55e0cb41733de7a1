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

from thalweg.engine.any_plan import AnyPlan
from thalweg.engine.loop import Progress as News
from thalweg.engine.loop import Watch


@contextmanager
def watching(plan: AnyPlan, console: Console, as_json: bool) -> Iterator[Watch]:
    """What to call after every round, for as long as the run lasts."""
    if as_json:
        yield lambda news: say_json(news.row)
    elif not console.is_terminal:
        yield _say_line
    else:
        columns = (
            TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(),
            TextColumn("{task.fields[said]}"),
        )
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("", total=plan.scenario.rounds, said="starting")
            accuracy = float("nan")

            def show(news: News) -> None:
                nonlocal accuracy
                accuracy = _accuracy(news.row, accuracy)
                said = f"{_clients(news.row)}   {_score(news.row, accuracy, 3)}   {_rate(news)}"
                progress.update(task, completed=news.rounds_done, said=said)

            yield show


def say_json(row: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(dict(row)) + "\n")
    sys.stdout.flush()


def clock(seconds: float) -> str:
    """Seconds as people say them.

    >>> clock(83.4), clock(3683)
    ('1:23', '1:01:23')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _say_line(news: News) -> None:
    """A line at every evaluation, and as often where there is nothing to evaluate on: for logs."""
    scenario = news.plan.scenario
    is_due = news.rounds_done % scenario.evaluate_every == 0 and "prequential_accuracy" in news.row
    if "accuracy" in news.row or is_due:
        print(
            f"round {news.rounds_done}/{scenario.rounds}  {_clients(news.row)}  "
            f"{_score(news.row, _accuracy(news.row), 4)}  {_rate(news)}",
            flush=True,
        )


def _accuracy(row: Mapping[str, Any], else_: float = float("nan")) -> float:
    """On the labels of the session's members, if there are sessions."""
    accuracy: float = row.get("session_accuracy", row.get("accuracy", else_))
    return accuracy


def _score(row: Mapping[str, Any], accuracy: float, digits: int) -> str:
    """The accuracy, or where nothing is tested on but what arrives, that on arrivals."""
    if math.isnan(accuracy) and "prequential_accuracy" in row:
        return f"test-then-train {row['prequential_accuracy']:.{digits}f}"
    return f"accuracy {accuracy:.{digits}f}"


def _clients(row: Mapping[str, Any]) -> str:
    """Who takes part, and in which session."""
    session = f"session {row['session']}  " if "session" in row else ""
    return f"{session}{row['cohort']} clients"


def _rate(news: News) -> str:
    seconds = max(news.seconds_now / max(news.rounds_now, 1), 1e-9)
    left = seconds * (news.plan.scenario.rounds - news.rounds_done)
    rate = f"{1 / seconds:.1f} rounds/s" if seconds < 2 else f"{seconds:.0f} s/round"
    return f"{rate}  {clock(left)} left"
