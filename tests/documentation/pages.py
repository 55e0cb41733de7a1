"""What the pages of the project say in code: blocks, commands, words between backticks."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")]
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """Fenced blocks of a language; the empty word: those that name none."""
    return [body for word, body in FENCE.findall(page.read_text()) if word == language]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return FENCE.sub("", page.read_text())


def spans(page: Path) -> list[str]:
    """Everything between single backticks."""
    return [" ".join(found.split()) for found in re.findall(r"`([^`]+)`", prose(page))]


def commands(page: Path) -> list[str]:
    """Commands of ours on a page: lines of blocks, indented lines, whole spans; without comments."""
    lines = [line for body in blocks(page, "") for line in body.replace("\\\n", " ").splitlines()]
    lines += [line for line in prose(page).splitlines() if line.startswith("    ")]
    lines += spans(page)
    found = [line.strip().removeprefix("$ ") for line in lines]
    found = [line for line in found if re.match(r"thalweg( |$)", line)]
    return list(dict.fromkeys(shlex.join(shlex.split(line, comments=True)) for line in found))
