"""``thalweg explain``"""

from __future__ import annotations

import textwrap
from pathlib import Path

from rich.console import Console

from thalweg.cli.code_files import print_code_files
from thalweg.cli.progress import print_json
from thalweg.core.errors import RunError, require
from thalweg.core.wrapped_text import make_printable
from thalweg.engine.plan import Plan, read_any_plan
from thalweg.engine.result import read_client_names
from thalweg.engine.run_folder import PLAN, RunFolder
from thalweg.recipes.monitoring import describe_alarm, list_monitored
from thalweg.report.explain import explain_rows


def explain_command(run_folder: Path, *, as_json: bool) -> None:
    """Print what a run monitored, and its events and decisions with their reasons."""
    require((run_folder / PLAN).is_file(), _describe_other_folder(run_folder))
    print_code_files(run_folder)
    plan = read_any_plan(run_folder)
    rows = RunFolder(run_folder).metrics()
    if not rows:
        raise RunError(f"{run_folder} has no finished round, so there is nothing to explain.")
    recipe = plan.recipe if isinstance(plan, Plan) else None
    monitored = [] if recipe is None else list_monitored(recipe)
    events = explain_rows(
        rows,
        alarm="" if recipe is None else describe_alarm(recipe),
        has_trigger=recipe is not None and recipe.session_trigger is not None,
        names=read_client_names(run_folder),
    )
    if as_json:
        print_json(
            {
                "folder": str(run_folder),
                "title": plan.title,
                "rounds": len(rows),
                "monitored": monitored,
                "events": events,
                "decisions": [
                    {"round": row["round"], **decision}
                    for row in rows
                    for decision in row.get("decisions", ())
                ],
            }
        )
        return
    if not any(row.get("alarms") or row.get("decisions") for row in rows):
        events = ["No alarm was raised and no decision was taken.", *events]
    lines = [f"{make_printable(plan.title)}: {len(rows)} round{'s' * (len(rows) != 1)}"]
    lines += [f"monitored: {text}" for text in monitored or ["nothing"]]
    lines += ["", *events]
    console = Console()
    text = "\n".join(_wrap(line, console.width) for line in lines)
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _describe_other_folder(folder: Path) -> str:
    """Return a message about a folder that does not contain a run."""
    expected = f"{folder}: expected the folder of a run, which contains {PLAN} and metrics.jsonl"
    if runs := sorted(folder.glob(f"*/seed-*/{PLAN}")):
        number = f"{len(runs)} run{'s' * (len(runs) > 1)}"
        return f"{expected}; it contains {number} of a comparison. Name one: {runs[0].parent}"
    return f"{expected}; {'found neither' if folder.is_dir() else 'there is no such folder'}."


def _wrap(line: str, width: int) -> str:
    return textwrap.fill(line, max(width, 20), subsequent_indent="  ", break_long_words=False)
