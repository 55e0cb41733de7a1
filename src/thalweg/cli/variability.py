"""``thalweg variability``"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from thalweg.analysis.stream_numbers import stream_numbers
from thalweg.cli.live import say_json


def variability_command(
    run: Path, rounds: int | None, as_json: bool, data_dir: Path | None
) -> None:
    numbers = stream_numbers(run, rounds=rounds, data_dir=data_dir)
    if as_json:
        say_json({"folder": str(run), **asdict(numbers)})
        return
    lines = [
        f"rounds                {numbers.rounds}",
        f"samples               {numbers.num_samples}   different ones that counted",
        f"effective samples     {numbers.effective_samples:.1f}   as good as so many that count the same",
        f"historical mass       {numbers.historical_mass:.4f}   share of the clients with stored data",
        f"gradient variability  {numbers.gradient_variability:.6g}   how unlike the whole the rounds are",
    ]
    Console().print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
