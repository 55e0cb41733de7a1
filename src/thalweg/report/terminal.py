"""The table of a comparison for a terminal of any width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from thalweg.report.summary import Summary
from thalweg.report.table import TableColumn, best, columns, legend, status_line, unfinished_cells

if TYPE_CHECKING:
    from rich.table import Table

COLUMN_GAP = 2  # blanks after a column; one of them is the box's


def to_rich(summaries: Sequence[Summary], *, width: int = 80) -> Table:
    """The table for a terminal of `width` letters; unfinished runs are named below it.

    Columns that do not fit beside the others follow below, each row with its recipe again: nothing
    is cut off.
    """
    from rich.text import Text

    whole = fold_columns(columns(summaries), best(summaries), summaries[0].scenario, width=width)
    whole.add_row(Text(legend(summaries), style="dim"))
    for cell in unfinished_cells(summaries):
        whole.add_row(Text(status_line(cell), style="yellow"))
    return whole


def fold_columns(
    shown: Sequence[TableColumn],
    bold: set[int],
    title: str,
    *,
    width: int,
    justify: Literal["left", "right"] = "right",
) -> Table:
    """Columns side by side as far as they fit; the first one is repeated before the others."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # Everything goes in as Text: a recipe named "[red]" is a name, not a colour.
    names, *others = shown
    names_width = min(_width(names), width // 3)
    whole = Table.grid(expand=False)
    whole.add_row(Text(title, style="italic"))
    for block in _blocks(others, width - names_width - COLUMN_GAP):
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, COLUMN_GAP - 1, 0, 0))
        table.add_column(Text(names.heading), width=names_width, overflow="fold")
        for column in block:
            table.add_column(Text(column.heading), justify=justify, min_width=_width(column))
        for row, name in enumerate(names.entries):
            texts = [name, *(column.entries[row] for column in block)]
            table.add_row(*(Text(text, style="bold" if row in bold else "") for text in texts))
        whole.add_row(table)
        whole.add_row("")
    return whole


def _blocks(shown: Sequence[TableColumn], width: int) -> list[list[TableColumn]]:
    """Columns that fit side by side, in their order; a column wider than `width` is alone."""
    blocks: list[list[TableColumn]] = [[]]
    for column in shown:
        used = sum(_width(other) + COLUMN_GAP for other in blocks[-1])
        if blocks[-1] and used + _width(column) + COLUMN_GAP > width:
            blocks.append([])
        blocks[-1].append(column)
    return blocks


def _width(column: TableColumn) -> int:
    from rich.cells import cell_len  # some scripts have letters two places wide

    return max(cell_len(text) for text in [column.heading, *column.entries])
