"""``thalweg export``"""

from __future__ import annotations

from pathlib import Path

import typer

from thalweg.cli.predict import load_run


def export_command(run_folder: Path, *, to: Path, client: str | None) -> None:
    """Export the model of a run."""
    from thalweg.engine.export import export_model

    result = load_run(run_folder)
    expected = export_model(result, to, client)
    typer.echo(f"{to}\ninput           {expected}")
    rules = result.preprocessing
    if to.suffix.lower() != ".safetensors":
        names = ", ".join(rules.class_names) or f"0 to {rules.num_outputs - 1}"
        numbers = f"{rules.num_outputs} number" + ("s" if rules.num_outputs > 1 else "")
        is_regression = rules.task == "regression"
        output = numbers if is_regression else f"probabilities of the classes {names}"
        typer.echo(f"output          {output}")
