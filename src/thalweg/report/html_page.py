"""A comparison as one self-contained HTML page: no network, no script, no other file.

The sections are also used by the page of a study.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import thalweg
from thalweg.core.metrics import is_redundant
from thalweg.report.cells import Cell, group_by_recipe, scores
from thalweg.report.curves import Panel, bank_panels, panels
from thalweg.report.events import event_tables
from thalweg.report.explain import explain_rows
from thalweg.report.figure import SAME_STYLE, choose_colour, panels_svg
from thalweg.report.numbers import NONE, format_metric, p_value, paired_amount, points
from thalweg.report.render import write_report_file
from thalweg.report.style import STYLE
from thalweg.report.summary import MIN_SEEDS_FOR_TEST, Summary, rank, spread, summarise
from thalweg.report.table import (
    ExtraTable,
    best,
    columns,
    count_tests,
    headline,
    legend,
    main_heading,
    main_metric_name,
    p_heading,
    unfinished_cells,
)
from thalweg.report.timeline import describe_timeline, find_timelines, timeline_svg
from thalweg.report.transitions import transition_table

# Even if the escaping failed somewhere, the browser would not run or fetch anything.
CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
MAX_DECISIONS = 30  # of one run on a page
BAND_CAPTION = "Lines are means over finished seeds; bands show one standard deviation."


def write_page(
    path: str | os.PathLike[str],
    title: str,
    cells: Sequence[Cell],
    scenario_description: str | None = None,
    published: Mapping[str, float] | None = None,
) -> None:
    """Write the page of a comparison atomically. See `page`."""
    text = page(title, cells, scenario_description, published)
    write_report_file(Path(path), text.encode("utf-8"))


def page(
    title: str,
    cells: Sequence[Cell],
    scenario_description: str | None = None,
    published: Mapping[str, float] | None = None,
) -> str:
    """The page of a comparison: headline, tables, figures, differences, seeds, failures, commands.

    `published` holds the paper's accuracies in per cent. The same cells give the same page.
    """
    summaries = summarise(cells, published)
    parts = [
        results_section(summaries),
        unfinished_section(summaries),
        *map(extra_section, (transition_table(cells), *event_tables(cells))),
        figure_section(cells),
        timeline_section(cells),
        bank_section(cells),
        decisions_section(cells),
        differences_section(summaries),
        seeds_section(cells),
        commands_section(cells),
    ]
    about = ""
    if scenario_description:
        about = f'<p class="quiet description">{escape(scenario_description)}</p>\n'
    return document(title, headline(summaries), about, "".join(parts))


def document(title: str, lead: str, about: str, body: str) -> str:
    """A whole page; `about` and `body` are HTML, `title` and `lead` are text."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{escape(CONTENT_SECURITY_POLICY)}">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<header>
<h1>{escape(title)}</h1>
<p class="headline">{_add_nonbreaking_spaces(lead)}</p>
{about}</header>
{body}<footer class="quiet">Made by Thalweg {escape(thalweg.__version__)}.</footer>
</main>
</body>
</html>
"""


def results_section(summaries: Sequence[Summary], *, level: int = 2) -> str:
    """The table of one scenario, without the differences, which have their own section."""
    summaries = rank(summaries)
    names, *others = columns(summaries, differences=False)
    main = main_heading(summaries)
    rows, bold = [], best(summaries)
    for row, name in enumerate(names.entries):
        entries = [
            entry(column.entries[row], "best" if row in bold and column.heading == main else "")
            for column in others
        ]
        rows.append(table_row(recipe_head(name, summaries[row].index), entries))
    table = html_table("Results", [names.heading, *(column.heading for column in others)], rows)
    note = escape(legend(summaries, differences=False))
    return section("Results", f'{table}<p class="quiet">{note}</p>\n', level=level)


def unfinished_section(summaries: Sequence[Summary], *, with_scenario: bool = False) -> str:
    """All runs that are not in the numbers; seeds with the same reason share one item."""
    cells = unfinished_cells(summaries)
    if not cells:
        return ""
    groups: dict[tuple[str | int, ...], list[Cell]] = {}
    for cell in cells:
        what = (cell.status, cell.reason, len(cell.rows))
        groups.setdefault((cell.scenario, cell.recipe, *what), []).append(cell)
    items = "".join(_unfinished_item(group, with_scenario) for group in groups.values())
    return section(
        "Runs that did not finish",
        f"<aside><p>These runs are neither in the means nor in the figures.</p>\n"
        f"<ul>\n{items}</ul></aside>\n",
    )


def _unfinished_item(group: Sequence[Cell], with_scenario: bool) -> str:
    cell = group[0]
    reason = " ".join(cell.reason.split()) or _default_reason(cell)
    ran = f", after {len(cell.rows)} rounds" if cell.rows else ""
    on = f" on {escape(cell.scenario)}" if with_scenario else ""
    seeds = f"seed{'' if len(group) == 1 else 's'} {', '.join(str(c.seed) for c in group)}"
    return (
        f"<li><strong>{escape(cell.recipe)}</strong>{on}, {seeds}: "
        f'<span class="unfinished">{cell.status}</span>{ran}: {escape(reason)}</li>\n'
    )


def figure_section(cells: Sequence[Cell], *, level: int = 2) -> str:
    """Curves of the metrics, or a sentence if there is nothing to draw."""
    drawn = panels(cells)
    if not drawn:
        nothing = "<p>There is no finished run to draw.</p>\n"
        return section("Metrics over rounds", nothing, level=level)
    has_shares = any(panel.unit for panel in drawn)
    caption = BAND_CAPTION + (" The first rounds may lie below the frame." if has_shares else "")
    if any(panel.marks for panel in drawn):
        caption += " Dotted vertical lines: rounds in which clients drifted."
    names = {curve.recipe for panel in drawn for curve in panel.curves}
    for recipe, group in group_by_recipe(cells).items():
        if recipe not in names:
            why = "no test result" if any(cell.is_done for cell in group) else "no finished run"
            caption += f" Not drawn: {recipe} ({why})."
    return _figure("Metrics over rounds", drawn, caption, level)


def timeline_section(cells: Sequence[Cell], *, level: int = 2) -> str:
    """Drifts and alarms of each client; empty if no alarm was raised."""
    found = find_timelines(cells)
    if not found:
        return ""
    parts = [
        f"<figure>\n{scroll_region(f'Figure: alarms of {each.recipe}', timeline_svg(each))}"
        f"<figcaption>{escape(describe_timeline(each))}</figcaption>\n</figure>\n"
        for each in found
    ]
    note = (
        "The first finished run with an alarm of each recipe. Dots: alarms. Bars: true drifts, if "
        "they are known."
    )
    text = f'<p class="quiet">{note}</p>\n'
    return section("Alarms by client", text + "".join(parts), level=level)


def decisions_section(cells: Sequence[Cell], *, level: int = 2) -> str:
    """Decisions of the policies with their reasons; empty if none was recorded."""
    parts = []
    for recipe, group in group_by_recipe(cells).items():
        done = [cell for cell in group if cell.is_done]
        decided = [cell for cell in done if any(row.get("decisions") for row in cell.rows)]
        if decided:
            cell = decided[0]
            lines = explain_rows(cell.rows, alarm=cell.alarm_meaning, names=cell.client_names)
            items = "".join(f"<li>{escape(line)}</li>\n" for line in lines[:MAX_DECISIONS])
            more = len(lines) - MAX_DECISIONS
            rest = f'<p class="quiet">{more} more: thalweg explain.</p>\n' if more > 0 else ""
            title = f"{recipe}, seed {cell.seed}: {len(lines)} events"
            parts.append(
                f"<details open>\n<summary>{escape(title)}</summary>\n<ul>\n{items}</ul>\n{rest}"
                "</details>\n"
            )
    if not parts:
        return ""
    note = '<p class="quiet">The first finished run with a decision of each recipe.</p>\n'
    return section("Decisions", note + "".join(parts), level=level)


def bank_section(cells: Sequence[Cell], *, level: int = 2) -> str:
    """Models, clusters and drifts found over the rounds; empty without a bank of several models."""
    drawn = bank_panels(cells)
    if not drawn:
        return ""
    caption = f"{BAND_CAPTION} Recipes with one model are not drawn."
    return _figure("Models over rounds", drawn, caption, level)


def _figure(heading: str, drawn: Sequence[Panel], caption: str, level: int) -> str:
    return section(
        heading,
        f"<figure>\n{scroll_region(f'Figure: {heading.lower()}', panels_svg(drawn))}"
        f"<figcaption>{escape(caption)}</figcaption>\n</figure>\n",
        level=level,
    )


def extra_section(extra: ExtraTable, *, level: int = 2) -> str:
    """A small table with its caption; empty if the table has no columns."""
    if not extra.columns:
        return ""
    names, *others = extra.columns
    rows = [
        table_row(recipe_head(name, index), [entry(column.entries[index]) for column in others])
        for index, name in enumerate(names.entries)
    ]
    table = html_table(extra.title, [column.heading for column in extra.columns], rows)
    caption = f'<p class="quiet">{escape(extra.caption)}</p>\n'
    return section(extra.title, table + caption, level=level)


def differences_section(summaries: Sequence[Summary], *, level: int = 2) -> str:
    """Differences between recipes seed by seed, next to the paper's difference if there is one."""
    pairs = [s for s in rank(summaries) if s.against]
    if not any(s.difference for s in pairs):
        return ""
    of, metric = main_metric_name(summaries), summaries[0].headline
    unit = ", points" if metric.unit == "share" else ""
    others = list(dict.fromkeys(s.against for s in pairs if s.against))
    has_paper = any(s.published_difference is not None for s in pairs)
    rows = []
    for s in pairs:
        difference = s.difference
        entries = [
            *([entry(s.against or "")] if len(others) > 1 else []),
            entry("0" if difference is None else str(difference.num_seeds)),
            entry(paired_amount(metric, difference)),
            entry(p_value(difference and difference.p_value)),
            *([entry(points(s.published_difference))] if has_paper else []),
        ]
        rows.append(table_row(recipe_head(s.recipe, s.index), entries))
    heads = ["recipe", *(["against"] if len(others) > 1 else []), "shared seeds"]
    heads += [f"difference{unit}", p_heading(summaries)]
    heads += ["paper's difference"] if has_paper else []
    to = others[0] if len(others) == 1 else "the recipe in the second column"
    note = (
        f"Difference in {of} to {to}, seed by seed"
        f"{', in percentage points' if unit else ''}: mean ± standard deviation. "
        "With the same seed, all recipes meet the same arrivals at the same clients, so "
        "differences vary less than the values themselves. p: two-sided paired t-test, with at "
        f"least {MIN_SEEDS_FOR_TEST} shared seeds."
    )
    if (tests := count_tests(summaries)) > 1:
        note += f" It is corrected for {tests} comparisons by the method of Holm."
    return section(
        "Paired differences",
        html_table("Paired differences", heads, rows) + f'<p class="quiet">{escape(note)}</p>\n',
        level=level,
    )


def seeds_section(cells: Sequence[Cell], *, level: int = 2) -> str:
    """One row per run."""
    found = {id(cell): scores(cell) for cell in cells}
    shown = [
        metric
        for metric in cells[0].table_metrics
        if any(each.get(metric.name) is not None for each in found.values())
        and not is_redundant(metric, list(found.values()))
    ]
    rows = []
    for index, group in enumerate(group_by_recipe(cells).values()):
        for cell in group:
            values = [
                format_metric(metric, spread([found[id(cell)].get(metric.name)]))
                for metric in shown
            ]
            entries = [
                entry(str(cell.seed)),
                entry(cell.status, "" if cell.is_done else "unfinished"),
                entry(str(len(cell.rows)) if cell.rows else NONE),
                *map(entry, values),
            ]
            rows.append(table_row(recipe_head(cell.recipe, index), entries))
    heads = ["recipe", "seed", "status", "rounds", *(metric.column for metric in shown)]
    is_share = any(metric.name == "accuracy" for metric in shown)
    note = "Accuracies in %; of" if is_share else "Of"
    note += " an unfinished run, those of the last evaluated round."
    table = html_table("Seed by seed", heads, rows)
    return section("Seed by seed", f'{table}<p class="quiet">{note}</p>\n', level=level)


def commands_section(cells: Sequence[Cell], *, level: int = 2) -> str:
    """The command that repeats each run."""
    parts = []
    for recipe, group in group_by_recipe(cells).items():
        lines = "\n".join(
            f"# seed {cell.seed}, {cell.status}\n{cell.command.strip()}" for cell in group
        )
        parts.append(
            f"<h{level + 1}>{escape(recipe)}</h{level + 1}>\n"
            f'<pre tabindex="0" aria-label="{escape(f"Commands of {recipe}")}">'
            f"{escape(lines)}</pre>\n"
        )
    return section("Commands", "".join(parts), level=level)


def _default_reason(cell: Cell) -> str:
    return "it has not been run" if cell.status == "missing" else "no reason was recorded"


def _add_nonbreaking_spaces(text: str) -> str:
    """Escape a sentence and prevent line breaks within its numbers."""
    text = escape(text)
    for part in (" ± ", " %", "p = ", "p &lt; "):
        text = text.replace(part, part.replace(" ", "&nbsp;"))
    return text


def section(heading: str, content: str, *, level: int = 2, anchor: str = "") -> str:
    mark = f' id="{escape(anchor)}"' if anchor else ""
    return f"<section{mark}>\n<h{level}>{escape(heading)}</h{level}>\n{content}</section>\n"


def html_table(label: str, headings: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{''.join(rows)}</tbody>\n</table>"
    return scroll_region(f"Table: {label.lower()}", table)


def scroll_region(label: str, content: str) -> str:
    """Wrap wide content so that it scrolls on a narrow screen, with the keyboard too."""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">\n'
        f"{content}\n</div>\n"
    )


def table_row(head: str, entries: Sequence[str]) -> str:
    return f"<tr>{head}{''.join(entries)}</tr>\n"


def recipe_head(name: str, index: int) -> str:
    """The name of a recipe with its colour; recipes with another line style have a ring."""
    kind = "key" if index < SAME_STYLE else "key ring"
    colour = f"color: var(--series-{index + 1}, {choose_colour(index)})"
    key = f'<span class="{kind}" style="{colour}" aria-hidden="true"></span>'
    return f'<th scope="row"><span class="name">{key}<span>{escape(name)}</span></span></th>'


def entry(text: str, kind: str = "") -> str:
    """A cell of a table; in a table that is too wide, a line may break before the spread.

    >>> entry("87.31 ± 0.12"), entry("2 of 3", "best")
    ('<td>87.31 ±&nbsp;0.12</td>', '<td class="best">2&nbsp;of&nbsp;3</td>')
    """
    shown = escape(text).replace(" ", "&nbsp;").replace("&nbsp;±", " ±")
    return f'<td class="{kind}">{shown}</td>' if kind else f"<td>{shown}</td>"
