"""A study as one self-contained HTML page, with one section per scenario."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from html import escape

from thalweg.report import html_page as sections
from thalweg.report.curves import Panel, metric_panels, panels
from thalweg.report.events import event_tables
from thalweg.report.figure import panels_svg
from thalweg.report.study import StudyResult
from thalweg.report.study_table import (
    NOT_COMPARABLE,
    QUICK_OPTION,
    StudyMatrix,
    format_balanced,
    format_entry,
    format_mean,
    format_published,
    legend,
    matrix,
    study_headline,
)
from thalweg.report.summary import Summary
from thalweg.report.sweeps import column_sweeps, row_sweeps


def study_page(result: StudyResult) -> str:
    """Headline, the whole table, unfinished runs, and every scenario like a comparison."""
    summaries = result.summaries()
    parts = [
        _whole_table(matrix(result), result.study.column_labels, legend(result, "below")),
        sections.unfinished_section(
            [s for of in summaries.values() for s in of], with_scenario=True
        ),
        _sweeps(column_sweeps(result)),
        *(_scenario(result, label, of) for label, of in summaries.items()),
        _timing_section(result),
        _commands(result),
    ]
    return sections.document(
        result.study.title, study_headline(result), _about(result), "".join(parts)
    )


def _about(result: StudyResult) -> str:
    about = f'<p class="quiet description">{escape(result.study.description)}</p>\n'
    if result.part:
        words = shlex.join(["--only", ",".join(result.part)])
        about += f'<p class="quiet">A part of the study: <code>{escape(words)}</code>.</p>\n'
    if result.scale == "quick":
        words = escape(NOT_COMPARABLE).replace(QUICK_OPTION, f"<code>{QUICK_OPTION}</code>")
        about = f'<p class="loud" role="note">{words}</p>\n' + about
    return about


def _whole_table(shown: StudyMatrix, columns: list[str], words: str) -> str:
    rows = []
    for i, name in enumerate(shown.names):
        head = _link(name, columns) if shown.is_transposed else escape(name)
        entries = [
            _entry(
                summary,
                is_best=(i, j) in shown.best,
                has_bound=shown.has_bound,
                mark=shown.marks[i][j],
            )
            for j, summary in enumerate(shown.entries[i])
        ]
        rows.append(sections.table_row(f'<th scope="row">{head}</th>', entries))
    heads = [
        "<th "
        f'scope="col">{escape(each) if shown.is_transposed else _link(each, columns, "<br>")}</th>'
        for each in shown.headings
    ]
    table = (
        f'<table class="matrix">\n<thead><tr><th scope="col">{escape(shown.corner)}</th>'
        f"{''.join(heads)}</tr></thead>\n<tbody>\n{''.join(rows)}</tbody>\n</table>"
    )
    content = sections.scroll_region("Table: all results", table)
    return sections.section("All results", f'{content}<p class="quiet">{escape(words)}</p>\n')


def _entry(summary: Summary | None, *, is_best: bool, has_bound: bool, mark: str) -> str:
    if summary is None:
        return f'<td class="quiet">{format_entry(None, mark=mark)}</td>'
    kind = "best" if is_best else "unfinished" if summary.main is None else ""
    lines = [f'<span class="{kind}">{escape(format_mean(summary, has_bound))}</span>']
    notes = [note for note in (format_published(summary), format_balanced(summary)) if note]
    lines += [f"<small>{escape(note)}</small>" for note in notes]
    return f"<td>{'<br>'.join(lines)}</td>"


def _scenario(result: StudyResult, label: str, summaries: list[Summary]) -> str:
    """The sections of a comparison, one heading level lower."""
    cells = result.cells_of(label)
    content = [
        sections.results_section(summaries, level=3),
        _sweeps(row_sweeps(summaries), level=3),
    ]
    # A forgetting can be negative, and a change of losses is no accuracy.
    if panels(cells) and summaries[0].shown_metric.name not in ("forgetting", "loss_change"):
        content.append(sections.figure_section(cells, level=3))
    if result.is_last_with_same_runs(label):
        content.append(_further_curves(metric_panels(cells, result.study.curves)))
    if result.is_first_with_same_runs(label):
        content += [
            *(sections.extra_section(extra, level=3) for extra in event_tables(cells)),
            sections.timeline_section(cells, level=3),
            sections.bank_section(cells, level=3),
        ]
    content += [
        sections.differences_section(summaries, level=3),
        _collapsible("Seed by seed", sections.seeds_section(cells, level=3)),
    ]
    return sections.section(label, "".join(content), anchor=_anchor(label, result))


def _sweeps(drawn: Sequence[Panel], *, level: int = 2) -> str:
    """Accuracy over swept values; empty without a sweep or with too few finished runs."""
    if not drawn:
        return ""
    caption = (
        "Every point is a separate run. Lines are means over finished seeds; bands show one "
        "standard deviation."
    )
    figures = "".join(sections.scroll_region(f"Figure: {p.title}", panels_svg([p])) for p in drawn)
    return sections.section(
        "Sweeps",
        f"<figure>\n{figures}<figcaption>{escape(caption)}</figcaption>\n</figure>\n",
        level=level,
    )


def _further_curves(drawn: Sequence[Panel]) -> str:
    """Curves of the metrics that a study names; empty without one."""
    if not drawn:
        return ""
    svg = sections.scroll_region("Figure: further metrics over rounds", panels_svg(drawn))
    caption = f"<figcaption>{escape(sections.BAND_CAPTION)}</figcaption>"
    content = f"<figure>\n{svg}{caption}\n</figure>\n"
    return sections.section("Further metrics over rounds", content, level=3)


def _anchor(label: str, result: StudyResult) -> str:
    return f"scenario-{result.study.column_labels.index(label) + 1}"


def _link(label: str, columns: list[str], between: str = " ") -> str:
    """The label of a column as a link to its section."""
    text = between.join(escape(part) for part in label.split(" ", 1))
    return f'<a href="#scenario-{columns.index(label) + 1}">{text}</a>'


def _timing_section(result: StudyResult) -> str:
    # A cell that two columns share is computed once.
    cells = {cell.command: cell for cell in result.cells}.values()
    total = sum(cell.seconds for cell in cells)
    lines = [f"<p>All rounds together took {_format_duration(total)} of computing time.</p>\n"]
    if result.timings:
        rows = [
            sections.table_row(
                f'<th scope="row">{number}</th>',
                [
                    sections.entry(str(timing.rounds)),
                    sections.entry(_format_duration(timing.seconds)),
                    sections.entry(_format_duration(timing.wall_seconds)),
                    sections.entry(str(timing.workers)),
                    sections.entry(f"{timing.speedup:.2f}"),
                ],
            )
            for number, timing in enumerate(result.timings, start=1)
        ]
        heads = ["start", "rounds", "computing time", "wall time", "workers", "speed-up"]
        lines.append(sections.html_table("Time", heads, rows))
        lines.append(
            '<p class="quiet">One row per start of this study. computing time: summed over its '
            "cells. speed-up: computing time divided by wall time.</p>\n"
        )
    return sections.section("Time", "".join(lines))


def _commands(result: StudyResult) -> str:
    parts = [
        '<pre tabindex="0" aria-label="The command of this '
        f'study">{escape(result.command)}</pre>\n',
        "<p>Commands of single runs:</p>\n",
    ]
    for label in result.study.column_labels:
        lines = [
            f"# {cell.recipe}, seed {cell.seed}, {cell.status}\n{cell.command.strip()}"
            for cell in result.cells_of(label)
        ]
        text = escape("\n".join(lines))
        parts.append(
            _collapsible(
                label,
                f'<pre tabindex="0" aria-label="{escape(f"Commands on {label}")}">{text}</pre>\n',
            )
        )
    return sections.section("Commands", "".join(parts))


def _collapsible(summary: str, content: str) -> str:
    return f"<details>\n<summary>{escape(summary)}</summary>\n{content}</details>\n"


def _format_duration(seconds: float) -> str:
    """
    >>> _format_duration(3.21), _format_duration(83), _format_duration(7384)
    ('3.2 s', '1 min 23 s', '2 h 3 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
