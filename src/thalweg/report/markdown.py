"""The table of a comparison in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from thalweg.report.summary import Summary
from thalweg.report.table import best, columns, legend, main_heading, status_line, unfinished_cells


def to_markdown(summaries: Sequence[Summary]) -> str:
    """The table in Markdown, the best mean in bold, unfinished runs in a list below it."""
    shown, bold = columns(summaries), best(summaries)
    lines = [
        markdown_row([escape_markdown(column.heading) for column in shown]),
        markdown_row(["---" if c.heading in ("recipe", "seeds") else "---:" for c in shown]),
    ]
    for row in range(len(summaries)):
        texts = [escape_markdown(column.entries[row]) for column in shown]
        lines.append(
            markdown_row(
                [
                    f"**{text}**"
                    if row in bold and column.heading == main_heading(summaries)
                    else text
                    for column, text in zip(shown, texts, strict=True)
                ]
            )
        )
    lines += ["", escape_markdown(legend(summaries))]
    if left_out := unfinished_cells(summaries):
        lines += ["", "Not finished, and not in the numbers:", ""]
        lines += [f"- {escape_markdown(status_line(cell))}" for cell in left_out]
    return "\n".join(lines) + "\n"


def markdown_row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", text)
