"""The summaries of a comparison as columns of text, with a headline and a legend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from thalweg.core.errors import require
from thalweg.core.metrics import (
    HEADLINE_WORDS,
    Metric,
    describe_simple,
    get_metric,
    is_redundant,
    metrics_in,
)
from thalweg.report.cells import Cell
from thalweg.report.numbers import (
    NONE,
    format_metric,
    p_value,
    paired_amount,
    percent_spread,
    points,
)
from thalweg.report.summary import MIN_SEEDS_FOR_TEST, PairedDifference, Spread, Summary

FAR_MARK = "*"
MAX_HEADING_NAME_LENGTH = 16  # characters
SIGNIFICANT = 0.05


class TableColumn(NamedTuple):
    """One column of a table."""

    heading: str
    entries: list[str]  # one per recipe


class ExtraTable(NamedTuple):
    """A small table beside the main one, with one row per recipe.

    Without columns it is not shown.
    """

    title: str
    columns: Sequence[TableColumn]  # the first has the names of the recipes
    caption: str  # what the columns mean


def columns(summaries: Sequence[Summary], *, differences: bool = True) -> list[TableColumn]:
    """The columns of the table. A column without any number is left out.

    Without `differences`, the differences to another recipe are left out as well.

    >>> from thalweg.report.summary import Spread
    >>> spreads = {"accuracy": Spread(0.8731, 0.0012, 2), "megabytes": Spread(1.5, 0.0, 2),
    ...            "seconds": Spread(8.0, 0.5, 2)}
    >>> first = Summary("sfedpo", "digits-full", 2, 3, (), spreads, published=87.60)
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
    main = summaries[0].headline
    first, *others = [
        TableColumn(
            _heading(metric, summaries),
            [format_metric(metric, s.spreads.get(metric.name)) for s in summaries],
        )
        for metric in _order_metrics(summaries[0])
        if not _is_hidden(metric, summaries)
    ]
    to_other = [
        TableColumn(
            difference_heading(summaries), [paired_amount(main, s.difference) for s in summaries]
        ),
        TableColumn(
            p_heading(summaries),
            [p_value(s.difference and s.difference.p_value) for s in summaries],
        ),
    ]
    same = [f"= {s.identical_to}" if s.identical_to else NONE for s in summaries]
    candidates = [
        first,
        TableColumn("paper", [format_published(s) for s in summaries]),
        TableColumn("vs paper", [format_gap_to_published(s) for s in summaries]),
        *(to_other if differences else []),
        *others,
    ]
    return [
        TableColumn("recipe", [s.recipe for s in summaries]),
        TableColumn("seeds", [_format_seeds(s) for s in summaries]),
        *([TableColumn("same as", same)] if set(same) != {NONE} else []),
        *(column for column in candidates if set(column.entries) != {NONE}),
    ]


def _order_metrics(summary: Summary) -> list[Metric]:
    """Return the metrics of tables; the main metric comes first."""
    main, metrics = summary.headline, [*metrics_in("table"), *summary.own_metrics.values()]
    return [main, *(metric for metric in metrics if metric.name != main.name)]


def _format_seeds(summary: Summary) -> str:
    if summary.is_deterministic and summary.num_done:
        return "1 (deterministic)"
    return f"{summary.num_done} of {summary.num_requested}"


def p_heading(summaries: Sequence[Summary]) -> str:
    """The heading of the p-values, which says whether they are corrected."""
    return "p (Holm)" if count_tests(summaries) > 1 else "p"


def count_tests(summaries: Sequence[Summary]) -> int:
    """The number of tests for which the p-values are corrected."""
    return max((s.difference.num_tests for s in summaries if s.difference), default=1)


def _heading(metric: Metric, summaries: Sequence[Summary]) -> str:
    """The heading of a metric; a lower-is-better metric in place of the accuracy has its own."""
    if metric.name == "accuracy" and summaries[0].is_lower_better:
        return get_metric(summaries[0].accuracy_metric).column
    return metric.column


def _is_hidden(metric: Metric, summaries: Sequence[Summary]) -> bool:
    """Whether a metric repeats another one, such as the states if there is only one."""
    return is_redundant(metric, [s.means for s in summaries])


def format_published(summary: Summary) -> str:
    """The paper's number."""
    if summary.published is None:
        return NONE
    spread = summary.published_spread
    return f"{summary.published:.2f}" + ("" if spread is None else f" ± {spread:.2f}")


def format_gap_to_published(summary: Summary) -> str:
    """Our mean minus the paper's, marked if it is more than two of the paper's spreads away."""
    mark = f" {FAR_MARK}" if summary.is_far_from_published else ""
    return points(summary.points_from_published) + mark


def best(summaries: Sequence[Summary | None]) -> set[int]:
    """The rows with the best mean, for bold type; empty with fewer than two different rows.

    Of identical recipes, only the first is marked.
    """
    found = [(row, s) for row, s in enumerate(summaries) if s is not None and s.main is not None]
    means = {row: s.main.mean for row, s in found if s.main is not None}
    if sum(s.identical_to is None for _, s in found) < 2:
        return set()
    top = min(means.values()) if found[0][1].is_lower_better else max(means.values())
    copies = {row for row, s in found if s.identical_to is not None}
    return {row for row, mean in means.items() if mean == top} - copies


def main_heading(summaries: Sequence[Summary]) -> str:
    """The heading of the column by which recipes are ranked."""
    return _heading(summaries[0].headline, summaries)


def main_metric_name(summaries: Sequence[Summary]) -> str:
    """The metric by which recipes are ranked, in words."""
    return HEADLINE_WORDS.get(summaries[0].main_metric) or summaries[0].headline.column


def unfinished_cells(summaries: Sequence[Summary]) -> list[Cell]:
    """All requested runs that are not in the numbers."""
    return [cell for s in summaries for cell in s.unfinished_cells]


def legend(summaries: Sequence[Summary], *, differences: bool = True) -> str:
    """What the columns mean."""
    shown = {column.heading for column in columns(summaries)}
    main = summaries[0].headline
    is_share = main.unit == "share"
    has_ranks = any(s.main is not None for s in summaries)
    words = "Mean ± standard deviation over finished seeds."
    words = f"Accuracies in %. {words}" if is_share and has_ranks else words
    is_accuracy = main.name in ("accuracy", "prequential_accuracy")
    direction = "" if is_accuracy else f": {main.better} is better"
    if has_ranks and (len(summaries) > 1 or not is_accuracy):
        words = f"Ranked by {main_heading(summaries)}{direction}. {words}"
    for metric in [*metrics_in("table"), *summaries[0].own_metrics.values()]:
        if metric.note and metric.column in shown:
            note = metric.get_note(repeats_rows=summaries[0].repeats_rows)
            words += f" {metric.column}: {note}."
    words += describe_simple_scores(summaries)
    if any(s.published is not None for s in summaries):
        words += " vs paper: percentage points above the published accuracy."
    if any(s.is_far_from_published for s in summaries):
        words += f" {FAR_MARK}: more than two of the paper's spreads away."
    words = " ".join([words, *describe_identical(summaries)])
    if any(s.is_deterministic for s in summaries):
        words += " deterministic: the same with every seed, so it was run once."
    if not differences:
        return words
    if any(s.difference is not None for s in summaries):
        of = main.name.replace("_", " ")
        others = ", ".join(dict.fromkeys(s.against for s in summaries if s.against))
        words += (
            f" {difference_heading(summaries)}: paired difference in {of} to {others}"
            f"{', in percentage points' if is_share else ''} over shared seeds."
        )
    if any(s.difference is not None and s.difference.p_value is not None for s in summaries):
        tests = count_tests(summaries)
        corrected = f", corrected for {tests} comparisons by the method of Holm"
        words += f" {p_heading(summaries)}: paired t-test{corrected if tests > 1 else ''}."
    return words


def describe_simple_scores(summaries: Sequence[Summary]) -> str:
    """Sentences about predictions without features that are not a row of the table; or empty.

    >>> first = Summary("sfedpo", "table", 1, 1, (), {}, simple_scores={"majority": 0.625})
    >>> describe_simple_scores([first])
    ' Predicting the majority class gives 62.50.'
    """
    metric, recipes = summaries[0].headline, {s.recipe.partition(",")[0] for s in summaries}
    found = ""
    for name, value in summaries[0].simple_scores.items():
        if {"mean": "running-mean"}.get(name, name) not in recipes:
            words = describe_simple(name)
            number = format_metric(metric, Spread(value, None, 1))
            found += f" {words[0].upper()}{words[1:]} gives {number}."
    return found


def describe_identical(summaries: Sequence[Summary]) -> list[str]:
    """A sentence for each recipe with the same metrics as another one, with the known reasons.

    >>> same = Summary("sfedpo", "gas", 1, 1, (), {}, identical_to="fedavg",
    ...                identical_reason="one latent state")
    >>> describe_identical([same])
    ['sfedpo is identical to fedavg here: one latent state.']
    """
    unknown = "all metrics are the same in every round"
    return [
        f"{s.recipe} is identical to {s.identical_to} here: {s.identical_reason or unknown}."
        for s in summaries
        if s.identical_to is not None
    ]


def difference_heading(summaries: Sequence[Summary]) -> str:
    """The heading of the differences: the other recipe's name, unless it is too long."""
    first = summaries[0].recipe
    others = {s.against for s in summaries if s.against} or {first}
    if len(others) > 1:
        return "gain"
    (other,) = others
    if len(other) <= MAX_HEADING_NAME_LENGTH:
        return f"vs {other}"
    return "vs first" if other == first else "difference"


def status_line(cell: Cell) -> str:
    """The status of an unfinished run on one line."""
    return f"{cell.recipe}, {short_status_line(cell)}"


def short_status_line(cell: Cell) -> str:
    """The same without the recipe."""
    reason = " ".join(cell.reason.split())
    return f"seed {cell.seed}: {cell.status}" + (f", {reason}" if reason else "")


def headline(summaries: Sequence[Summary]) -> str:
    """A comparison in one or two sentences: the best recipe, its lead, and the unfinished runs.

    The best recipe is compared with the first one; if the first is itself the best, with the second
    best.

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
        reverse=summaries[0].headline.better != "lower",
    )
    scenario = summaries[0].scenario
    if not ranked:
        return f"On {scenario}, no run has finished yet.{_describe_unfinished(summaries)}"
    best = ranked[0]
    of = main_metric_name(summaries)
    metric = summaries[0].headline
    text = f"On {scenario}, {best.recipe} reaches {percent_spread(best.main)} % {of}"
    if metric.unit != "share":
        extreme = "lowest" if metric.better == "lower" else "highest"
        text = f"On {scenario}, {best.recipe} has the {extreme} {of}, "
        text += format_metric(metric, best.main)
    if best.main is not None and best.main.num_seeds > 1:
        text += f" over {best.main.num_seeds} seeds"
    if best is not summaries[0]:
        text += _compare_with(summaries[0].recipe, best.difference, metric)
    elif different := [s for s in ranked[1:] if s.identical_to != best.recipe]:
        text += _compare_with(different[0].recipe, _negate(different[0].difference), metric)
    same = "".join(f" {sentence}" for sentence in describe_identical(summaries))
    return f"{text}.{same}{_describe_unfinished(summaries)}"


def _compare_with(other: str, difference: PairedDifference | None, metric: Metric) -> str:
    if difference is None:
        return f"; it shares no finished seed with {other}"
    gap = metric.scale * difference.mean
    if round(gap, 2) == 0 and (metric.unit == "share" or gap == 0):
        return f", equal to {other} on the shared seeds"
    # The best mean can be below the other on the shared seeds if some runs did not finish.
    size = f"{abs(gap):.2f} points" if metric.unit == "share" else f"{abs(gap):.3g}"
    text = f", {size} {'above' if gap > 0 else 'below'} {other}"
    seeds = f"{difference.num_seeds} shared seed{'' if difference.num_seeds == 1 else 's'}"
    if difference.p_value is not None:
        p = p_value(difference.p_value)
        equals = p if p.startswith("<") else f"= {p}"
        corrected = ", corrected" if difference.num_tests > 1 else ""
        text += f" (paired t-test over {seeds}, p {equals}{corrected})"
        if difference.p_value >= SIGNIFICANT:
            text += ", which is not significant"
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
