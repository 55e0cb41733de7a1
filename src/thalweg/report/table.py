"""The summary of a comparison as a table: for the terminal, for Markdown, for other programs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from thalweg.core.errors import require
from thalweg.report.cells import Cell
from thalweg.report.numbers import (
    NONE,
    amount,
    p_value,
    paired_points,
    percent_spread,
    points,
)
from thalweg.report.summary import Spread, Summary

if TYPE_CHECKING:
    from rich.table import Table


BETWEEN = 2  # blanks after a column in the terminal; one of them is the box's

MARK = "*"
LONGEST_IN_HEADING = 16  # letters


class Column(NamedTuple):
    """One column of the table, as it is read."""

    heading: str
    entries: list[str]  # one per recipe


def columns(summaries: Sequence[Summary], *, differences: bool = True) -> list[Column]:
    """The table column by column. A column in which nobody has a number is left away.

    Without `differences`, those to the first recipe are left away as well.

    >>> from thalweg.report.summary import Spread
    >>> first = Summary("sfedpo", "digits-full", 2, 3, (), Spread(0.8731, 0.0012, 2), None, None,
    ...     None, Spread(1.5, 0.0, 2), Spread(8.0, 0.5, 2), "accuracy", None, published=87.60)
    >>> for column in columns([first]):
    ...     print(column.heading, "|", *column.entries)
    recipe | sfedpo
    seeds | 2 of 3
    accuracy | 87.31 ± 0.12
    paper | 87.60
    vs paper | −0.29
    MB sent | 1.5 ± 0.0
    time, s | 8.0 ± 0.5
    """
    require(len(summaries) > 0, "there is nothing to show: no summaries were given.")
    to_first = [
        Column(_versus(summaries), [paired_points(s.difference) for s in summaries]),
        Column("p", [p_value(s.difference and s.difference.p_value) for s in summaries]),
    ]
    candidates = [
        Column("accuracy", [percent_spread(s.accuracy) for s in summaries]),
        Column("paper", [published(s) for s in summaries]),
        Column("vs paper", [from_published(s) for s in summaries]),
        *(to_first if differences else []),
        Column("mean state", [percent_spread(s.state_accuracy) for s in summaries]),
        Column("worst state", [percent_spread(s.worst_state_accuracy) for s in summaries]),
        Column("prequential", [percent_spread(s.prequential_accuracy) for s in summaries]),
        Column("MB sent", [amount(s.megabytes) for s in summaries]),
        Column("time, s", [amount(s.seconds) for s in summaries]),
    ]
    return [
        Column("recipe", [s.recipe for s in summaries]),
        Column("seeds", [f"{s.num_done} of {s.num_asked}" for s in summaries]),
        *(column for column in candidates if set(column.entries) != {NONE}),
    ]


def published(summary: Summary) -> str:
    """The paper's number as it prints it."""
    if summary.published is None:
        return NONE
    spread = summary.published_spread
    return f"{summary.published:.2f}" + ("" if spread is None else f" ± {spread:.2f}")


def from_published(summary: Summary) -> str:
    """Ours minus the paper's, marked if it is more than two of the paper's spreads."""
    mark = f" {MARK}" if summary.is_far_from_published else ""
    return points(summary.points_from_published) + mark


def best(summaries: Sequence[Summary]) -> set[int]:
    """Rows whose mean is the highest of several, to set in bold."""
    means = [s.main.mean for s in summaries if s.main is not None]
    if len(means) < 2:
        return set()
    return {row for row, s in enumerate(summaries) if s.main and s.main.mean == max(means)}


def main_heading(summaries: Sequence[Summary]) -> str:
    """The column that recipes are ranked by."""
    return "accuracy" if summaries[0].compared == "accuracy" else "prequential"


def unfinished(summaries: Sequence[Summary]) -> list[Cell]:
    """Every run that was asked for and is not in the numbers."""
    return [cell for s in summaries for cell in s.unfinished]


def legend(summaries: Sequence[Summary], *, differences: bool = True) -> str:
    """What the columns mean, in as few words as the reader needs."""
    words = "Accuracies in %. Mean ± standard deviation over finished seeds."
    if any(s.published is not None for s in summaries):
        words += " vs paper: percentage points above the published accuracy."
    if any(s.is_far_from_published for s in summaries):
        words += f" {MARK}: more than two of the paper's spreads away."
    if any(s.state_accuracy is not None for s in summaries):
        words += " Mean and worst state: accuracy over the latent states."
    words += " MB sent: up and down."
    if not differences:
        return words
    if any(s.difference is not None for s in summaries):
        of = "accuracy" if summaries[0].compared == "accuracy" else "prequential accuracy"
        others = ", ".join(dict.fromkeys(s.against for s in summaries if s.against))
        words += (
            f" {_versus(summaries)}: paired difference in {of} to {others}, in"
            " percentage points over shared seeds."
        )
    if any(s.difference is not None and s.difference.p_value is not None for s in summaries):
        words += " p: paired t-test."
    return words


def to_rich(summaries: Sequence[Summary], *, width: int = 80) -> Table:
    """The table for a terminal of `width` letters; unfinished runs are named below it.

    Columns that do not fit beside the others follow below, each row with its recipe again: nothing
    is cut off.
    """
    from rich.text import Text

    whole = folded(columns(summaries), best(summaries), summaries[0].scenario, width=width)
    whole.add_row(Text(legend(summaries), style="dim"))
    for cell in unfinished(summaries):
        whole.add_row(Text(sentence(cell), style="yellow"))
    return whole


def folded(shown: Sequence[Column], bold: set[int], title: str, *, width: int) -> Table:
    """Columns side by side as far as they fit; the first one is repeated before the others."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # Everything goes in as Text: a recipe named "[red]" is a name, not a colour.
    names, *others = shown
    names_width = min(_width(names), width // 3)
    whole = Table.grid(expand=False)
    whole.add_row(Text(title, style="italic"))
    for block in _blocks(others, width - names_width - BETWEEN):
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, BETWEEN - 1, 0, 0))
        table.add_column(Text(names.heading), width=names_width, overflow="fold")
        for column in block:
            table.add_column(Text(column.heading), justify="right", min_width=_width(column))
        for row, name in enumerate(names.entries):
            texts = [name, *(column.entries[row] for column in block)]
            table.add_row(*(Text(text, style="bold" if row in bold else "") for text in texts))
        whole.add_row(table)
        whole.add_row("")
    return whole


def to_markdown(summaries: Sequence[Summary]) -> str:
    """The table in Markdown, the best mean in bold, unfinished runs in a list below it."""
    shown, bold = columns(summaries), best(summaries)
    lines = [
        markdown_row([escaped(column.heading) for column in shown]),
        markdown_row(["---" if c.heading in ("recipe", "seeds") else "---:" for c in shown]),
    ]
    for row in range(len(summaries)):
        texts = [escaped(column.entries[row]) for column in shown]
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
    lines += ["", escaped(legend(summaries))]
    if left_out := unfinished(summaries):
        lines += ["", "Not finished, and not in the numbers:", ""]
        lines += [f"- {escaped(sentence(cell))}" for cell in left_out]
    return "\n".join(lines) + "\n"


def to_csv(summaries: Sequence[Summary]) -> str:
    """The table for other programs: one number per field, always the same columns, empty: none.

    Accuracies and differences are in per cent with four decimals, so that a table with two can be
    made of them without rounding twice.
    """
    require(len(summaries) > 0, "there is nothing to show: no summaries were given.")
    return csv_text([record(s) for s in summaries])


def csv_text(records: Sequence[Mapping[str, str]]) -> str:
    """Records with the same fields, under a line with their names."""
    file = io.StringIO()
    writer = csv.DictWriter(file, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return file.getvalue()


def record(s: Summary) -> dict[str, str]:
    """One summary as fields of text."""
    difference = s.difference
    return {
        "recipe": s.recipe,
        "scenario": s.scenario,
        "seeds_done": str(s.num_done),
        "seeds_asked": str(s.num_asked),
        **_two_fields("accuracy_percent", s.accuracy, 100),
        **_two_fields("state_accuracy_percent", s.state_accuracy, 100),
        **_two_fields("worst_state_accuracy_percent", s.worst_state_accuracy, 100),
        **_two_fields("prequential_accuracy_percent", s.prequential_accuracy, 100),
        **_two_fields("megabytes", s.megabytes, 1),
        **_two_fields("seconds", s.seconds, 1),
        "compared_by": s.compared,
        "difference_points_mean": _field(difference and 100 * difference.mean),
        "difference_points_std": _field(
            None if difference is None or difference.std is None else 100 * difference.std
        ),
        "difference_p_value": ""
        if difference is None or difference.p_value is None
        else f"{difference.p_value:.6g}",
        "difference_seeds": str(difference.num_seeds) if difference else "0",
        "published_percent": _field(s.published),
        "points_from_published": _field(s.points_from_published),
        "unfinished": "; ".join(_short_sentence(cell) for cell in s.unfinished),
        "difference_to": s.against or "",
        "published_spread": _field(s.published_spread),
        "published_difference_points": _field(s.published_difference),
    }


def _versus(summaries: Sequence[Summary]) -> str:
    """The heading of the differences; the other recipe's name, unless it is too long for one."""
    first = summaries[0].recipe
    others = {s.against for s in summaries if s.against} or {first}
    if len(others) > 1:
        return "gain"
    (other,) = others
    if len(other) <= LONGEST_IN_HEADING:
        return f"vs {other}"
    return "vs first" if other == first else "difference"


def _blocks(shown: Sequence[Column], width: int) -> list[list[Column]]:
    """Columns that fit side by side, in their order; a column wider than `width` is alone."""
    blocks: list[list[Column]] = [[]]
    for column in shown:
        used = sum(_width(other) + BETWEEN for other in blocks[-1])
        if blocks[-1] and used + _width(column) + BETWEEN > width:
            blocks.append([])
        blocks[-1].append(column)
    return blocks


def _width(column: Column) -> int:
    from rich.cells import cell_len  # some scripts have letters two places wide

    return max(cell_len(text) for text in [column.heading, *column.entries])


def sentence(cell: Cell) -> str:
    """What became of a run that is not done, on one line."""
    return f"{cell.recipe}, {_short_sentence(cell)}"


def _short_sentence(cell: Cell) -> str:
    reason = " ".join(cell.reason.split())
    return f"seed {cell.seed}: {cell.status}" + (f", {reason}" if reason else "")


def markdown_row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def escaped(text: str) -> str:
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", text)


def _two_fields(name: str, spread: Spread | None, scale: float) -> dict[str, str]:
    std = None if spread is None or spread.std is None else scale * spread.std
    mean = None if spread is None else scale * spread.mean
    return {f"{name}_mean": _field(mean), f"{name}_std": _field(std)}


def _field(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
