"""Report Markdown lines of prose with more than 100 characters: ``make lint``.

    python tools/check_markdown.py [FILE ...]          (default: all Markdown files)

Fenced and indented code, tables, comments and the addresses of links do not count.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAX_LENGTH = 100


def long_lines(text: str) -> Iterator[int]:
    """Yield the numbers of the lines that are too long."""
    in_fence = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            in_fence = not in_fence
        elif in_fence or line.startswith("    ") or line.lstrip().startswith(("|", "[")):
            continue
        elif len(re.sub(r"\]\([^)]*\)", "]", re.sub(r"<!--.*?-->", "", line))) > MAX_LENGTH:
            yield number


def main(files: list[Path]) -> int:
    found = [f"{file}:{number}" for file in files for number in long_lines(file.read_text())]
    for place in found:
        print(f"{place}: more than {MAX_LENGTH} characters; wrap the line")
    return 1 if found else 0


if __name__ == "__main__":
    named = [Path(word) for word in sys.argv[1:]]
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")]
    sys.exit(main(named or sorted(pages)))
