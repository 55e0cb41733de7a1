"""``thalweg flower-app``"""

from __future__ import annotations

from pathlib import Path

import typer

from thalweg.cli.run import plan_from_options
from thalweg.core.errors import ConfigError
from thalweg.engine.builders import add_default_clipping, add_default_size_limit
from thalweg.engine.plan import Plan
from thalweg.network.flower.project import ProjectOptions, write_project


def flower_app_command(
    folder: Path,
    recipe: str,
    *,
    on: str | None,
    sets: list[str],
    seed: int | None,
    rounds: int | None,
    min_clients: int,
    deadline_s: float,
) -> None:
    """Write a Flower project for a plan and print how to start it."""
    plan, default, _ = plan_from_options(recipe, on, sets, seed, rounds)
    if not isinstance(plan, Plan):
        raise ConfigError(
            f"expected a recipe, got the baseline {recipe}, which has no clients; see thalweg list."
        )
    plan, robust_note = add_default_clipping(plan, sets, is_complete=default is None)
    plan = add_default_size_limit(plan, sets, is_complete=default is None)
    run_folder = Path("runs") / f"{plan.recipe.name}-{plan.scenario.name}-seed{plan.seed}"
    files = write_project(folder, plan, ProjectOptions(run_folder, min_clients, deadline_s))
    lines = [*map(str, files), *filter(None, [robust_note])]
    typer.echo("\n".join([*lines, f"start it with: flwr run {folder} SUPERLINK"]))
