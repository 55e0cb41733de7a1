"""``thalweg run``"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console

from thalweg.cli.plan_view import plan_tree
from thalweg.cli.progress import format_duration, print_json, show_progress
from thalweg.core.errors import ConfigError
from thalweg.engine.any_plan import AnyPlan, get_method, make_any_plan, read_any_plan
from thalweg.engine.baseline import run_any_plan
from thalweg.engine.loop import MetricsRow, Result


def run_command(
    recipe: str,
    on: str | None,
    sets: list[str],
    seed: int | None,
    rounds: int | None,
    out: Path | None,
    resume: bool,
    as_json: bool,
    engine: str,
    workers: int | None,
    data_dir: Path | None,
) -> None:
    console = Console()
    plan, default, command = plan_from_options(recipe, on, sets, seed, rounds, engine)
    if out is None:
        out = Path(recipe) if resume and Path(recipe).is_dir() else default_run_folder(plan, resume)
    if not as_json:
        console.print(plan_tree(plan, default))
    try:
        with show_progress(plan, console, as_json) as watch:
            result = run_any_plan(
                plan,
                out=out,
                resume=resume,
                data_dir=data_dir,
                watch=watch,
                command=f"{command} --out {shlex.quote(str(out))}",
                workers=workers,
            )
    except KeyboardInterrupt:
        typer.echo(
            f"interrupted; continue with: thalweg run {shlex.quote(str(out))} --resume", err=True
        )
        raise SystemExit(130) from None
    if as_json:
        print_json({"folder": str(out), "final": dict(result.final)})
    else:
        alarms = result.alarms if isinstance(result, Result) else None
        print_summary(console, result.metrics, alarms, out, command)


def plan_from_options(
    recipe: str,
    on: str | None,
    sets: list[str],
    seed: int | None,
    rounds: int | None,
    engine: str = "auto",
    verb: str = "run",
) -> tuple[AnyPlan, AnyPlan | None, str]:
    """The plan, the same without overrides, and the command that makes it."""
    if recipe.endswith(".toml") or Path(recipe).is_dir():
        if on is not None or sets or seed is not None or rounds is not None:
            raise ConfigError(
                f"{recipe} is a whole plan; --on, --set, --seed and --rounds cannot change it. "
                "Edit a copy of its plan.toml, or name a recipe instead."
            )
        return read_any_plan(Path(recipe)), None, f"thalweg {verb} {shlex.quote(recipe)}"
    if on is None:
        raise ConfigError("which scenario? Say --on SCENARIO; thalweg list shows them.")
    plan = make_any_plan(recipe, on, seed=seed or 0, rounds=rounds, engine=engine, overrides=sets)
    words = ["thalweg", verb, recipe, "--on", on, "--seed", str(plan.seed)]
    words += [word for each in sets for word in ("--set", each)]
    words += ["--rounds", str(rounds)] if rounds is not None else []
    words += ["--engine", engine] if engine != "auto" else []
    return plan, make_any_plan(recipe, on, seed=plan.seed), shlex.join(words)


def default_run_folder(plan: AnyPlan, resume: bool) -> Path:
    """runs/<recipe>-<scenario>-seed<n>, and a number behind it if that is taken."""
    base = Path("runs") / f"{get_method(plan).name}-{plan.scenario.name}-seed{plan.seed}"
    if resume or not base.exists():
        return base
    number = 2
    while (folder := base.with_name(f"{base.name}-{number}")).exists():
        number += 1
    return folder


def print_summary(
    console: Console,
    metrics: Sequence[MetricsRow],
    alarms: MetricsRow | None,
    out: Path,
    command: str,
) -> None:
    """What a run came to, in a few lines."""
    from thalweg.evaluation import transitions
    from thalweg.report.alarms import alarm_line
    from thalweg.report.cells import is_noticeable_gap  # tables and figures can wait until now
    from thalweg.report.drifts import drift_lines
    from thalweg.report.transitions import transition_lines

    final = metrics[-1]
    seconds = sum(row["seconds"] for row in metrics)
    megabytes = sum(row["bytes_up"] + row["bytes_down"] for row in metrics) / 1e6
    tested = [row["prequential_accuracy"] for row in metrics if "prequential_accuracy" in row]
    lines = [f"done in {format_duration(seconds)}, {len(metrics)} rounds, {megabytes:.1f} MB sent"]
    if "session_accuracy" in final:
        lines.append(
            f"session         {final['session_accuracy']:.4f}   on the labels that its members have"
        )
    if "accuracy" in final:
        lines.append(
            f"accuracy        {final['accuracy']:.4f}   test loss {final['test_loss']:.4f}"
        )
        if is_noticeable_gap(final["accuracy"], final.get("balanced_accuracy")):
            lines.append(
                f"balanced        {final['balanced_accuracy']:.4f}   mean over the classes, rare ones too"
            )
        lines.append(
            f"latent states   {final['state_accuracy']:.4f} weighted mean, "
            f"{final['worst_state_accuracy']:.4f} worst"
        )
        if "client_accuracy" in final:
            lines.append(
                f"clients         {final['client_accuracy']:.4f} mean, "
                f"{final['worst_client_accuracy']:.4f} worst, on data like their own"
            )
    if tested:
        mean = sum(tested) / len(tested)
        lines.append(f"test-then-train {mean:.4f}   mean over all rounds, on data as it arrived")
    for place, line in enumerate(transition_lines(transitions(metrics))):
        lines.append(f"{'' if place else 'transitions':<16}{line}")
    if alarms is not None:
        lines.append(f"alarms          {alarm_line(alarms)}")
    lines += [f"{word:<16}{line}" for word, line in drift_lines(metrics)]
    lines += [f"results         {out}/", f"repeat          {command}"]
    console.print("\n".join(lines), highlight=False, soft_wrap=True)
