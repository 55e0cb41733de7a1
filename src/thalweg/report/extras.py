"""Small tables beside the main one, for runs in which something happens: for a page, in Markdown, in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from thalweg.report import sections
from thalweg.report.markdown import escaped, markdown_row
from thalweg.report.table import Column
from thalweg.report.terminal import folded

if TYPE_CHECKING:
    from rich.table import Table


class Extra(NamedTuple):
    """A table recipe by recipe; without columns there is nothing to show."""

    title: str
    columns: Sequence[Column]  # the first has the names of the recipes
    words: str  # what the columns mean


def extra_section(extra: Extra, *, level: int = 2) -> str:
    """For a page; empty if there is nothing to show."""
    if not extra.columns:
        return ""
    names, *others = extra.columns
    rows = [
        sections.table_row(
            sections.recipe_head(name, place),
            [sections.entry(column.entries[place]) for column in others],
        )
        for place, name in enumerate(names.entries)
    ]
    table = sections.html_table(extra.title, [column.heading for column in extra.columns], rows)
    words = f'<p class="quiet">{escape(extra.words)}</p>\n'
    return sections.section(extra.title, table + words, level=level)


def extra_markdown(extra: Extra, *, level: int = 2) -> str:
    """Below a table in Markdown; empty if there is nothing to show."""
    if not (shown := extra.columns):
        return ""
    lines = [
        f"{'#' * level} {extra.title}\n",
        markdown_row([column.heading for column in shown]),
        markdown_row(["---", *("---:" for _ in shown[1:])]),
        *(
            markdown_row([escaped(column.entries[row]) for column in shown])
            for row in range(len(shown[0].entries))
        ),
    ]
    return "\n" + "\n".join([*lines, "", extra.words]) + "\n"


def extra_rich(extra: Extra, *, width: int = 80) -> Table | None:
    """For a terminal; None if there is nothing to show."""
    from rich.text import Text

    if not extra.columns:
        return None
    whole = folded(extra.columns, set(), extra.title.lower(), width=width)
    whole.add_row(Text(extra.words, style="dim"))
    return whole
