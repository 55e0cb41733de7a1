"""``thalweg variability``"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from thalweg.analysis.stream_numbers import StreamNumbers, stream_numbers
from thalweg.cli.progress import print_json


def variability_command(
    run: Path, rounds: int | None, as_json: bool, data_dir: Path | None
) -> None:
    numbers = _measure_with_progress(run, rounds, data_dir)
    if as_json:
        print_json({"folder": str(run), **asdict(numbers)})
        return
    lines = [
        f"rounds                {numbers.rounds}",
        f"samples               {numbers.num_samples}   different ones that counted",
        f"effective samples     {numbers.effective_samples:.1f}   as good as so many that count the same",
        f"historical mass       {numbers.historical_mass:.4f}   share of the clients with stored data",
        f"gradient variability  {numbers.gradient_variability:.6g}   how unlike the whole the rounds are",
    ]
    Console().print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


def _measure_with_progress(run: Path, rounds: int | None, data_dir: Path | None) -> StreamNumbers:
    """Plays and measures; on a terminal, a bar says how far it is, and goes when the numbers come."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("playing it again", total=None)

        def watch(done: int, steps: int) -> None:
            what = "playing it again" if 2 * done < steps else "measuring"
            progress.update(task, description=what, completed=done, total=steps)

        return stream_numbers(run, rounds=rounds, data_dir=data_dir, watch=watch)
