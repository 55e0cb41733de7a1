"""A study as a table of rows and columns, with the paper's numbers next to ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from thalweg.core.errors import require
from thalweg.core.metrics import METRICS
from thalweg.report.cells import Cell
from thalweg.report.events import event_tables
from thalweg.report.numbers import NONE, format_metric, percent_spread, points
from thalweg.report.render import (
    csv_text,
    escape_markdown,
    extra_markdown,
    fold_columns,
    markdown_row,
    to_markdown,
    to_record,
)
from thalweg.report.study import StudyResult
from thalweg.report.summary import Summary, bound_95
from thalweg.report.table import FAR_MARK, TableColumn, best, status_line, unfinished_cells
from thalweg.scenarios.studies import Column as StudyColumn
from thalweg.scenarios.studies import Study
from thalweg.scenarios.studies.base import TASK_METRICS

if TYPE_CHECKING:
    from rich.table import Table

MAX_COLUMNS = 8  # a table with more columns than this and than rows is transposed
QUICK_OPTION = "--scale quick"
NOT_COMPARABLE = f"Not comparable with the paper: a tenth of the rounds ({QUICK_OPTION})."
TASK_ASSIGNMENT_NOTE = (
    "By labels: the mixture of models for a task was chosen with the task's own test labels. By "
    "oracle: it is the mixture of the clients with the task's true concept."
)


class StudyMatrix(NamedTuple):
    """Return the displayed table of a study; transposed if that is narrower."""

    corner: str
    headings: list[str]
    names: list[str]
    entries: list[list[Summary | None]]  # one list per name; None: the study has no such cell
    best: set[tuple[int, int]]  # (row, column) of the best recipe of each scenario
    is_transposed: bool
    has_bound: bool  # whether the number after ± is a 95 % bound
    marks: list[list[str]]  # letters of the reasons why cells are left out; empty: not left out


def matrix(result: StudyResult) -> StudyMatrix:
    """Recipes x scenarios, or transposed."""
    rows, columns = result.study.row_labels, result.study.column_labels
    has_bound = result.study.spread == "bound"
    found = {(s.recipe, label): s for label, of in result.summaries().items() for s in of}
    entries = [[found.get((row, column)) for column in columns] for row in rows]
    bold = {(i, j) for j in range(len(columns)) for i in best([of[j] for of in entries])}
    marks = [[result.study.mark_of(row, column) for column in columns] for row in rows]
    if len(columns) > max(MAX_COLUMNS, len(rows)):
        return StudyMatrix(
            "scenario",
            rows,
            columns,
            [list(each) for each in zip(*entries, strict=True)],
            {(j, i) for i, j in bold},
            True,
            has_bound,
            [list(each) for each in zip(*marks, strict=True)],
        )
    return StudyMatrix("recipe", columns, rows, entries, bold, False, has_bound, marks)


def format_mean(summary: Summary, has_bound: bool = False) -> str:
    """Our number and its seeds: ``86.97 ± 0.21``, ``failed``, ``86.97, 1 of 3``."""
    states = [cell.status for cell in summary.unfinished_cells]
    if summary.main is None:
        return next(
            (state for state in ("failed", "interrupted", "missing") if state in states), NONE
        )
    text = format_metric(
        summary.shown_metric, bound_95(summary.main) if has_bound else summary.main
    )
    if not states:
        return text
    failed = ", failed" if "failed" in states else ""
    return f"{text}, {summary.num_done} of {summary.num_requested}{failed}"


def format_published(summary: Summary) -> str:
    """The paper's number and the difference: ``paper 86.77 ± 0.42, +0.20``.

    Empty if there is none.
    """
    if summary.published is None:
        return ""
    spread = "" if summary.published_spread is None else f" ± {summary.published_spread:.2f}"
    text = f"paper {summary.published:.2f}{spread}"
    if summary.points_from_published is None:
        return text
    mark = f" {FAR_MARK}" if summary.is_far_from_published else ""
    return f"{text}, {points(summary.points_from_published)}{mark}"


def format_balanced(summary: Summary) -> str:
    """``balanced 61.20 ± 0.42``; empty if it is close to the accuracy."""
    if not summary.needs_balanced:
        return ""
    return f"balanced {percent_spread(summary.spreads['balanced_accuracy'])}"


def format_entry(summary: Summary | None, has_bound: bool = False, mark: str = "") -> str:
    """Our number with notes; of a cell that the study does not have, a dash and its `mark`."""
    if summary is None:
        return f"{NONE} {mark}".strip()
    notes = [note for note in (format_published(summary), format_balanced(summary)) if note]
    return format_mean(summary, has_bound) + (f" ({'; '.join(notes)})" if notes else "")


def legend(result: StudyResult, where: str = "in brackets") -> str:
    """What the entries of the table mean."""
    summaries = [s for of in result.summaries().values() for s in of]
    metrics = dict.fromkeys(map(result.study.metric_of, result.study.columns))
    of = "; ".join(METRICS[metric].description for metric in metrics)
    if all(METRICS[metric].unit == "share" for metric in metrics):
        of += ", in %"
    after = "95 % bound of the mean" if result.study.spread == "bound" else "standard deviation"
    words = f"{of}: mean ± {after} over finished seeds"
    if any(s.published is not None for s in summaries):
        words += f"; {where}: the paper's number, and ours minus the paper's"
    words += "."
    if any(metric in TASK_METRICS for metric in metrics):
        words += f" {TASK_ASSIGNMENT_NOTE}"
    if any(s.is_far_from_published for s in summaries):
        words += f" {FAR_MARK}: more than two of the paper's spreads away."
    if any(s.needs_balanced for s in summaries):
        note = METRICS["balanced_accuracy"].note
        words += f" balanced: {note}; shown if it differs by more than half a point."
    return words + result.study.describe_left_out()


def study_headline(result: StudyResult) -> str:
    """A study in a few sentences: the best recipe, the distance to the paper, the missing runs."""
    by_column = result.summaries()
    everything = [s for of in by_column.values() for s in of]
    parts = [_describe_winners(by_column), _describe_gap_to_paper(everything)]
    left_out = unfinished_cells(everything)
    if left_out:
        counts = Counter(cell.status for cell in left_out)
        kinds = ", ".join(f"{count} {status}" for status, count in counts.items())
        parts.append(f"Of {len(result.cells)} runs, {len(left_out)} are not done: {kinds}.")
    return " ".join(part for part in parts if part)


def _describe_winners(by_column: Mapping[str, Sequence[Summary]]) -> str:
    """The recipes that are best in most columns; errors count if no column has another metric."""
    wins: Counter[str] = Counter()
    scenarios = 0
    is_lower = all(summaries[0].is_lower_better for summaries in by_column.values())
    for summaries in by_column.values():
        winners = best(summaries)
        if winners and summaries[0].is_lower_better == is_lower:
            scenarios += 1
            wins.update(summaries[row].recipe for row in winners)
    if not wins:
        return ""
    most = max(wins.values())
    names = [name for name, count in wins.items() if count == most]
    who = f"{', '.join(names[:-1])} and {names[-1]} each have" if names[1:] else f"{names[0]} has"
    where = "the one scenario" if scenarios == 1 else f"{most} of {scenarios} scenarios"
    mean = "lowest mean" if is_lower else "highest mean"
    return f"{who} the {mean} in {where} with two or more recipes done."


def _describe_gap_to_paper(summaries: Sequence[Summary]) -> str:
    gaps = [s.points_from_published for s in summaries if s.points_from_published is not None]
    if not gaps:
        return ""
    mean_gap = points(fmean(gaps))
    text = f"Our means differ from {len(gaps)} published numbers by {mean_gap} points on average"
    spreads = [s for s in summaries if s.points_from_published is not None and s.published_spread]
    if spreads:
        near = sum(not s.is_far_from_published for s in spreads)
        text += f"; {near} of {len(spreads)} within two of the paper's spreads"
    return f"{text}."


def study_rich(result: StudyResult, *, width: int = 80) -> Table:
    """The table for a terminal; columns that do not fit side by side follow below."""
    from rich.text import Text

    shown = matrix(result)
    table_columns = [TableColumn(shown.corner, shown.names)]
    for j, heading in enumerate(shown.headings):
        texts = [
            format_entry(row[j], shown.has_bound, marks[j])
            for row, marks in zip(shown.entries, shown.marks, strict=True)
        ]
        table_columns.append(TableColumn(heading, texts))
    whole = fold_columns(table_columns, set(), result.study.title, width=width, justify="left")
    whole.add_row(Text(legend(result), style="dim"))
    for text in _failures(result):
        whole.add_row(Text(text, style="yellow"))
    if result.scale == "quick":
        whole.add_row(Text(NOT_COMPARABLE, style="bold red"))
    return whole


def _failures(result: StudyResult) -> list[str]:
    """One sentence per entry of the table with failures; the page lists all of them."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in result.cells:
        if cell.status == "failed":
            groups.setdefault((cell.recipe, cell.scenario), []).append(cell)
    return [
        f"{scenario}: {status_line(cells[0])}" + _format_more_seeds(len(cells) - 1)
        for (_, scenario), cells in groups.items()
    ]


def _format_more_seeds(number: int) -> str:
    return f" (and {number} more seed{'s' if number > 1 else ''})" if number else ""


def study_markdown(result: StudyResult) -> str:
    """The whole table, then one table per scenario with differences and unfinished runs."""
    shown = matrix(result)
    lines = [
        f"# {escape_markdown(result.study.title)}",
        "",
        escape_markdown(study_headline(result)),
        "",
    ]
    if result.scale == "quick":
        lines += [f"**{escape_markdown(NOT_COMPARABLE)}**", ""]
    lines += [escape_markdown(result.study.description), "", f"`{result.command}`", ""]
    lines += [
        markdown_row([shown.corner, *map(escape_markdown, shown.headings)]),
        markdown_row(["---", *("---:" for _ in shown.headings)]),
    ]
    for i, name in enumerate(shown.names):
        texts = [
            escape_markdown(format_entry(summary, shown.has_bound, mark))
            for summary, mark in zip(shown.entries[i], shown.marks[i], strict=True)
        ]
        bold = [f"**{t}**" if (i, j) in shown.best else t for j, t in enumerate(texts)]
        lines.append(markdown_row([escape_markdown(name), *bold]))
    lines += ["", escape_markdown(legend(result)), ""]
    for column, summaries in result.summaries().items():
        lines += [f"## {escape_markdown(column)}", "", to_markdown(summaries)]
        if result.is_first_with_same_runs(column):
            found = event_tables(result.cells_of(column))
            lines += [extra_markdown(extra, level=3) for extra in found]
    return "\n".join(lines)


def study_csv(result: StudyResult) -> str:
    """One record per row and column of the study, with the full recipe and scenario."""
    require(len(result.cells) > 0, "there is nothing to show: the study has no cells.")
    rows = {row.label: row for row in result.study.rows}
    columns = {column.label: column for column in result.study.columns}
    return csv_text(
        [
            {
                "study": result.study.name,
                "scale": result.scale,
                "row": s.recipe,
                "column": label,
                **to_record(s),
                "recipe": result.study.recipe_of(rows[s.recipe], columns[label]),
                "scenario": ",".join([columns[label].scenario, *columns[label].overrides]),
                "far_from_published": str(s.is_far_from_published).lower(),
                **_metric_fields(result.study, columns[label]),
            }
            for label, summaries in result.summaries().items()
            for s in summaries
        ]
    )


def _metric_fields(study: Study, column: StudyColumn) -> dict[str, str]:
    """The metric of a column and, for tasks, how mixtures were chosen."""
    metric = study.metric_of(column)
    of_tasks = metric in TASK_METRICS
    return {
        "metric": metric,
        "task": column.task if of_tasks else "",
        "assignment": column.assignment if of_tasks else "",
    }
