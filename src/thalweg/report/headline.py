"""A comparison in a sentence or two, computed from its numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from thalweg.report.numbers import p_value, percent_spread
from thalweg.report.summary import MIN_SEEDS_FOR_TEST, PairedDifference, Summary
from thalweg.report.table import unfinished_cells

SIGNIFICANT = 0.05


def headline(summaries: Sequence[Summary]) -> str:
    """Who is best, by how much, whether the seeds bear it out, and what is missing.

    The best recipe is set against the first one, with which every other is paired; if the first is
    itself the best, against the next best.

    >>> from thalweg.report.cells import Cell
    >>> from thalweg.report.summary import summarise
    >>> def cell(recipe, accuracy):
    ...     rows = [{"round": 1, "accuracy": accuracy}]
    ...     return Cell(recipe, "digits-full", 0, "done", "", rows, "thalweg run", 1.0)
    >>> headline(summarise([cell("sfedpo", 0.875), cell("fedogd", 0.625)]))
    'On digits-full, sfedpo reaches 87.50 % test accuracy, 25.00 points above fedogd (1 shared seed,
     too few for a test).'
    """
    ranked = sorted(
        (s for s in summaries if s.main is not None),
        key=lambda s: s.main.mean if s.main else 0.0,
        reverse=True,
    )
    scenario = summaries[0].scenario
    if not ranked:
        return f"On {scenario}, no run has finished yet.{_describe_unfinished(summaries)}"
    best = ranked[0]
    of = "test accuracy" if best.main_metric == "accuracy" else "prequential accuracy"
    text = f"On {scenario}, {best.recipe} reaches {percent_spread(best.main)} % {of}"
    if best.main is not None and best.main.num_seeds > 1:
        text += f" over {best.main.num_seeds} seeds"
    if best is not summaries[0]:
        text += _compare_with(summaries[0].recipe, best.difference)
    elif len(ranked) > 1:
        text += _compare_with(ranked[1].recipe, _negate(ranked[1].difference))
    return f"{text}.{_describe_unfinished(summaries)}"


def _compare_with(other: str, difference: PairedDifference | None) -> str:
    if difference is None:
        return f"; it shares no finished seed with {other}"
    gap = 100 * difference.mean
    if round(gap, 2) == 0:
        return f", level with {other} on the seeds they share"
    # The best mean can still be behind on the shared seeds if some runs did not finish.
    text = f", {abs(gap):.2f} points {'above' if gap > 0 else 'below'} {other}"
    seeds = f"{difference.num_seeds} shared seed{'' if difference.num_seeds == 1 else 's'}"
    if difference.p_value is not None:
        p = p_value(difference.p_value)
        equals = p if p.startswith("<") else f"= {p}"
        text += f" (paired t-test over {seeds}, p {equals})"
        if difference.p_value >= SIGNIFICANT:
            text += ", a difference these seeds do not settle"
    elif difference.num_seeds < MIN_SEEDS_FOR_TEST:
        text += f" ({seeds}, too few for a test)"
    else:
        text += f" (the same in all {seeds})"
    return text


def _negate(difference: PairedDifference | None) -> PairedDifference | None:
    return difference and difference._replace(mean=-difference.mean)


def _describe_unfinished(summaries: Sequence[Summary]) -> str:
    cells = unfinished_cells(summaries)
    if not cells:
        return ""
    counts = Counter(cell.status for cell in cells)
    kinds = ", ".join(f"{count} {status}" for status, count in counts.items())
    return (
        f" Of {sum(s.num_requested for s in summaries)} runs, {len(cells)} did not finish: {kinds}."
    )
