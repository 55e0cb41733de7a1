"""Tell the user which code of a run folder is imported."""

from __future__ import annotations

from pathlib import Path

from thalweg.cli.messages import print_message
from thalweg.engine.code_files import list_code_files
from thalweg.engine.plan import read_plain_plan


def print_code_files(folder: Path) -> None:
    """Print which Python files a run folder or plan names, before they are imported.

    The command that loads a path rejects one that is neither.
    """
    if not folder.is_file() and not (folder / "plan.toml").is_file():
        return
    for file in list_code_files(read_plain_plan(folder)[0]):
        print_message(f"note: {folder} imports {file}")
