"""Read the code on the project's Markdown pages: blocks, commands and inline code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")]
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELL = ("", "sh", "bash", "console")  # languages of blocks that may contain commands


def blocks(page: Path, *languages: str) -> list[str]:
    """Return the fenced blocks in some languages; "" stands for blocks without a language."""
    return [body for word, body in FENCE.findall(page.read_text()) if word in languages]


def prose(page: Path) -> str:
    """Return the page without its fenced blocks."""
    return FENCE.sub("", page.read_text())


def spans(page: Path) -> list[str]:
    """Return everything between single backticks."""
    return [" ".join(found.split()) for found in re.findall(r"`([^`]+)`", prose(page))]


def commands(page: Path) -> list[str]:
    """Return the thalweg commands in blocks, indented lines and inline code, without comments."""
    code = "\n".join(blocks(page, *SHELL)).replace("\\\n", " ")
    lines = code.splitlines()
    lines += [line for line in prose(page).splitlines() if line.startswith("    ")]
    lines += spans(page)
    found = [line.strip().removeprefix("$ ") for line in lines]
    found = [line for line in found if re.match(r"thalweg( |$)", line)]
    return list(dict.fromkeys(shlex.join(shlex.split(line, comments=True)) for line in found))
