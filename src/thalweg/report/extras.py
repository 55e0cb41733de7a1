"""Small tables beside the main one, for runs in which something happens: for a page, in Markdown, in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from thalweg.report import sections
from thalweg.report.markdown import escape_markdown, markdown_row
from thalweg.report.table import TableColumn
from thalweg.report.terminal import fold_columns

if TYPE_CHECKING:
    from rich.table import Table


class ExtraTable(NamedTuple):
    """A table recipe by recipe; without columns there is nothing to show."""

    title: str
    columns: Sequence[TableColumn]  # the first has the names of the recipes
    caption: str  # what the columns mean


def extra_section(extra: ExtraTable, *, level: int = 2) -> str:
    """For a page; empty if there is nothing to show."""
    if not extra.columns:
        return ""
    names, *others = extra.columns
    rows = [
        sections.table_row(
            sections.recipe_head(name, index),
            [sections.entry(column.entries[index]) for column in others],
        )
        for index, name in enumerate(names.entries)
    ]
    table = sections.html_table(extra.title, [column.heading for column in extra.columns], rows)
    caption = f'<p class="quiet">{escape(extra.caption)}</p>\n'
    return sections.section(extra.title, table + caption, level=level)


def extra_markdown(extra: ExtraTable, *, level: int = 2) -> str:
    """Below a table in Markdown; empty if there is nothing to show."""
    if not (shown := extra.columns):
        return ""
    lines = [
        f"{'#' * level} {extra.title}\n",
        markdown_row([column.heading for column in shown]),
        markdown_row(["---", *("---:" for _ in shown[1:])]),
        *(
            markdown_row([escape_markdown(column.entries[row]) for column in shown])
            for row in range(len(shown[0].entries))
        ),
    ]
    return "\n" + "\n".join([*lines, "", extra.caption]) + "\n"


def extra_rich(extra: ExtraTable, *, width: int = 80) -> Table | None:
    """For a terminal; None if there is nothing to show."""
    from rich.text import Text

    if not extra.columns:
        return None
    whole = fold_columns(extra.columns, set(), extra.title.lower(), width=width)
    whole.add_row(Text(extra.caption, style="dim"))
    return whole
