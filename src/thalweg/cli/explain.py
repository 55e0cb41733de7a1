"""``thalweg explain``"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from thalweg.cli.code_files import print_code_files
from thalweg.cli.progress import print_json
from thalweg.core.errors import RunError, require
from thalweg.engine.plan import Plan, read_any_plan
from thalweg.engine.run_folder import RunFolder
from thalweg.recipes.monitoring import list_monitored
from thalweg.report.explain import explain_rows


def explain_command(run_folder: Path, *, as_json: bool) -> None:
    """Print what a run monitored, and its events and decisions with their reasons."""
    require(
        run_folder.is_dir(),
        f"{run_folder}: expected the folder of a run, which contains plan.toml and metrics.jsonl.",
    )
    print_code_files(run_folder)
    plan = read_any_plan(run_folder)
    rows = RunFolder(run_folder).metrics()
    if not rows:
        raise RunError(f"{run_folder} has no finished round, so there is nothing to explain.")
    monitored = list_monitored(plan.recipe) if isinstance(plan, Plan) else []
    events = explain_rows(rows)
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
    lines = [f"{plan.title}: {len(rows)} rounds"]
    lines += [f"monitored: {text}" for text in monitored or ["nothing"]]
    lines += ["", *(events or ["No alarm was raised and no decision was taken."])]
    Console().print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
