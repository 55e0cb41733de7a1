"""``thalweg variability``"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from thalweg.analysis.stream_numbers import StreamNumbers, stream_numbers
from thalweg.cli.code_files import print_code_files
from thalweg.cli.progress import print_json


def variability_command(
    run: Path, *, rounds: int | None, as_json: bool, data_dir: Path | None
) -> None:
    """Print the effective number of samples and the gradient variability of a run."""
    print_code_files(run)
    numbers = _measure_with_progress(run, rounds, data_dir)
    if as_json:
        print_json({"folder": str(run), **asdict(numbers)})
        return
    lines = [
        f"rounds                {numbers.rounds}",
        f"samples               {numbers.num_samples}   distinct samples used",
        f"effective samples     {numbers.effective_samples:.1f}   equally weighted samples",
        f"historical mass       {numbers.historical_mass:.4f}   share of the stored data",
        f"gradient variability  {numbers.gradient_variability:.6g}   of rounds around the mean",
    ]
    Console().print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


def _measure_with_progress(run: Path, rounds: int | None, data_dir: Path | None) -> StreamNumbers:
    """Repeat the run and measure it, with a progress bar on a terminal."""
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
        task = progress.add_task("repeating the run", total=None)

        def watch(done: int, steps: int) -> None:
            what = "repeating the run" if 2 * done < steps else "measuring"
            progress.update(task, description=what, completed=done, total=steps)

        return stream_numbers(run, rounds=rounds, data_dir=data_dir, watch=watch)
