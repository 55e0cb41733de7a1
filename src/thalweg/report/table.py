"""The summary of a comparison as columns of text, and the words around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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
from thalweg.report.summary import Summary

BALANCED_NOTE = "Balanced: accuracy averaged over the classes, so that rare ones count as much."
FAR_MARK = "*"
MAX_HEADING_NAME_LENGTH = 16  # letters


class TableColumn(NamedTuple):
    """One column of the table, as it is read."""

    heading: str
    entries: list[str]  # one per recipe


def columns(summaries: Sequence[Summary], *, differences: bool = True) -> list[TableColumn]:
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
        TableColumn(
            difference_heading(summaries), [paired_points(s.difference) for s in summaries]
        ),
        TableColumn("p", [p_value(s.difference and s.difference.p_value) for s in summaries]),
    ]
    balanced = [percent_spread(s.balanced_accuracy) for s in summaries]
    candidates = [
        TableColumn(
            "forgetting" if summaries[0].is_lower_better else "accuracy",
            [percent_spread(s.accuracy) for s in summaries],
        ),
        *([TableColumn("balanced", balanced)] if any(s.needs_balanced for s in summaries) else []),
        TableColumn("paper", [published(s) for s in summaries]),
        TableColumn("vs paper", [format_gap_to_published(s) for s in summaries]),
        *(to_first if differences else []),
        TableColumn("mean state", [percent_spread(s.state_accuracy) for s in summaries]),
        TableColumn("worst state", [percent_spread(s.worst_state_accuracy) for s in summaries]),
        TableColumn("prequential", [percent_spread(s.prequential_accuracy) for s in summaries]),
        TableColumn("MB sent", [amount(s.megabytes) for s in summaries]),
        TableColumn("time, s", [amount(s.seconds) for s in summaries]),
    ]
    return [
        TableColumn("recipe", [s.recipe for s in summaries]),
        TableColumn("seeds", [f"{s.num_done} of {s.num_requested}" for s in summaries]),
        *(column for column in candidates if set(column.entries) != {NONE}),
    ]


def published(summary: Summary) -> str:
    """The paper's number as it prints it."""
    if summary.published is None:
        return NONE
    spread = summary.published_spread
    return f"{summary.published:.2f}" + ("" if spread is None else f" ± {spread:.2f}")


def format_gap_to_published(summary: Summary) -> str:
    """Ours minus the paper's, marked if it is more than two of the paper's spreads."""
    mark = f" {FAR_MARK}" if summary.is_far_from_published else ""
    return points(summary.points_from_published) + mark


def best(summaries: Sequence[Summary | None]) -> set[int]:
    """Rows whose mean is the best of several, to set in bold: the highest, or of what is inverted the lowest."""
    found = [(row, s) for row, s in enumerate(summaries) if s is not None and s.main is not None]
    means = {row: s.main.mean for row, s in found if s.main is not None}
    if len(means) < 2:
        return set()
    top = min(means.values()) if found[0][1].is_lower_better else max(means.values())
    return {row for row, mean in means.items() if mean == top}


def main_heading(summaries: Sequence[Summary]) -> str:
    """The column that recipes are ranked by."""
    if summaries[0].is_lower_better:
        return "forgetting"
    return "accuracy" if summaries[0].main_metric == "accuracy" else "prequential"


def unfinished_cells(summaries: Sequence[Summary]) -> list[Cell]:
    """Every run that was asked for and is not in the numbers."""
    return [cell for s in summaries for cell in s.unfinished_cells]


def legend(summaries: Sequence[Summary], *, differences: bool = True) -> str:
    """What the columns mean, in as few words as the reader needs."""
    words = "Accuracies in %. Mean ± standard deviation over finished seeds."
    if any(s.needs_balanced for s in summaries):
        words += f" {BALANCED_NOTE}"
    if any(s.published is not None for s in summaries):
        words += " vs paper: percentage points above the published accuracy."
    if any(s.is_far_from_published for s in summaries):
        words += f" {FAR_MARK}: more than two of the paper's spreads away."
    if any(s.state_accuracy is not None for s in summaries):
        words += " Mean and worst state: accuracy over the latent states."
    words += " MB sent: up and down."
    if not differences:
        return words
    if any(s.difference is not None for s in summaries):
        of = "accuracy" if summaries[0].main_metric == "accuracy" else "prequential accuracy"
        others = ", ".join(dict.fromkeys(s.against for s in summaries if s.against))
        words += (
            f" {difference_heading(summaries)}: paired difference in {of} to {others}, in"
            " percentage points over shared seeds."
        )
    if any(s.difference is not None and s.difference.p_value is not None for s in summaries):
        words += " p: paired t-test."
    return words


def difference_heading(summaries: Sequence[Summary]) -> str:
    """The heading of the differences; the other recipe's name, unless it is too long for one."""
    first = summaries[0].recipe
    others = {s.against for s in summaries if s.against} or {first}
    if len(others) > 1:
        return "gain"
    (other,) = others
    if len(other) <= MAX_HEADING_NAME_LENGTH:
        return f"vs {other}"
    return "vs first" if other == first else "difference"


def status_line(cell: Cell) -> str:
    """What became of a run that is not done, on one line."""
    return f"{cell.recipe}, {short_status_line(cell)}"


def short_status_line(cell: Cell) -> str:
    reason = " ".join(cell.reason.split())
    return f"seed {cell.seed}: {cell.status}" + (f", {reason}" if reason else "")
