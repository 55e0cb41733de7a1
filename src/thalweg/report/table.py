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

BALANCED = "Balanced: accuracy averaged over the classes, so that rare ones count as much."
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
        Column(versus(summaries), [paired_points(s.difference) for s in summaries]),
        Column("p", [p_value(s.difference and s.difference.p_value) for s in summaries]),
    ]
    balanced = [percent_spread(s.balanced_accuracy) for s in summaries]
    candidates = [
        Column(
            "forgetting" if summaries[0].is_inverted else "accuracy",
            [percent_spread(s.accuracy) for s in summaries],
        ),
        *([Column("balanced", balanced)] if any(s.is_lopsided for s in summaries) else []),
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


def best(summaries: Sequence[Summary | None]) -> set[int]:
    """Rows whose mean is the best of several, to set in bold: the highest, or of what is inverted the lowest."""
    found = [(row, s) for row, s in enumerate(summaries) if s is not None and s.main is not None]
    means = {row: s.main.mean for row, s in found if s.main is not None}
    if len(means) < 2:
        return set()
    top = min(means.values()) if found[0][1].is_inverted else max(means.values())
    return {row for row, mean in means.items() if mean == top}


def main_heading(summaries: Sequence[Summary]) -> str:
    """The column that recipes are ranked by."""
    if summaries[0].is_inverted:
        return "forgetting"
    return "accuracy" if summaries[0].compared == "accuracy" else "prequential"


def unfinished(summaries: Sequence[Summary]) -> list[Cell]:
    """Every run that was asked for and is not in the numbers."""
    return [cell for s in summaries for cell in s.unfinished]


def legend(summaries: Sequence[Summary], *, differences: bool = True) -> str:
    """What the columns mean, in as few words as the reader needs."""
    words = "Accuracies in %. Mean ± standard deviation over finished seeds."
    if any(s.is_lopsided for s in summaries):
        words += f" {BALANCED}"
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
            f" {versus(summaries)}: paired difference in {of} to {others}, in"
            " percentage points over shared seeds."
        )
    if any(s.difference is not None and s.difference.p_value is not None for s in summaries):
        words += " p: paired t-test."
    return words


def versus(summaries: Sequence[Summary]) -> str:
    """The heading of the differences; the other recipe's name, unless it is too long for one."""
    first = summaries[0].recipe
    others = {s.against for s in summaries if s.against} or {first}
    if len(others) > 1:
        return "gain"
    (other,) = others
    if len(other) <= LONGEST_IN_HEADING:
        return f"vs {other}"
    return "vs first" if other == first else "difference"


def sentence(cell: Cell) -> str:
    """What became of a run that is not done, on one line."""
    return f"{cell.recipe}, {short_sentence(cell)}"


def short_sentence(cell: Cell) -> str:
    reason = " ".join(cell.reason.split())
    return f"seed {cell.seed}: {cell.status}" + (f", {reason}" if reason else "")
