"""Arguments that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from thalweg.core.errors import ConfigError
from thalweg.engine.ray.cluster import RayCluster, choose_cluster, connect_cluster
from thalweg.report.comparison import ComparisonArguments


def require_scenario(on: str | None) -> str:
    """Return the value of ``--on``, or raise an error if it is missing."""
    if on is None:
        raise ConfigError(
            "a scenario is required: add --on SCENARIO; thalweg list shows all scenarios."
        )
    return on


def parse_seeds(text: str) -> list[int]:
    """Parse seeds: "3" means 0 to 2; "4,8" means these two, and "4," one seed."""
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


def format_seeds(seeds: Sequence[int]) -> str:
    """Return seeds as the value of ``--seeds``.

    >>> format_seeds([0, 1, 2]), format_seeds([4, 8]), format_seeds([4])
    ('3', '4,8', '4,')
    """
    if list(seeds) == list(range(len(seeds))):
        return str(len(seeds))
    return ",".join(map(str, seeds)) + ("," if len(seeds) == 1 else "")


def connect_workers(arguments: ComparisonArguments) -> ComparisonArguments:
    """Connect to the Ray cluster, if there is one, so that its number of workers is known."""
    if not isinstance(arguments.workers, RayCluster):
        return arguments
    return replace(arguments, workers=connect_cluster(arguments.workers))


def make_comparison_arguments(
    *,
    seeds: str,
    sets: Sequence[str],
    rounds: int | None,
    out: Path | None,
    engine: str,
    address: str | None,
    num_gpus: float | None,
    workers: int | None,
    device: str,
    data_dir: Path | None,
    track: Sequence[str] = (),
) -> ComparisonArguments:
    """Return the options of ``thalweg compare`` and ``thalweg tune`` as arguments."""
    cluster = choose_cluster(engine, address, num_gpus, workers)
    return ComparisonArguments(
        seeds=parse_seeds(seeds),
        rounds=rounds,
        overrides=sets,
        engine="auto" if cluster else engine,
        workers=cluster or workers,
        device=device,
        out=out,
        data_dir=data_dir,
        track=track,
    )
