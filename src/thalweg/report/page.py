"""A comparison as one HTML page that needs nothing else: no network, no script, no other file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import thalweg
from thalweg.report.cells import Cell, by_recipe, scores
from thalweg.report.curves import panels
from thalweg.report.figure import COLOURS, figure_svg
from thalweg.report.files import write_whole
from thalweg.report.headline import headline
from thalweg.report.numbers import p_value, paired_points, percent
from thalweg.report.style import STYLE
from thalweg.report.summary import FEWEST_FOR_A_TEST, Summary, summarise
from thalweg.report.table import best, columns, legend, main_heading, unfinished

# Even if something slipped through the escaping, the browser would not run or fetch it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def write_page(
    path: str | os.PathLike[str],
    title: str,
    cells: Sequence[Cell],
    scenario_description: str | None = None,
    published: Mapping[str, float] | None = None,
) -> None:
    """Write the page of a comparison, whole or not at all. See `page`."""
    text = page(title, cells, scenario_description, published)
    write_whole(Path(path), text.encode("utf-8"))


def page(
    title: str,
    cells: Sequence[Cell],
    scenario_description: str | None = None,
    published: Mapping[str, float] | None = None,
) -> str:
    """The page of a comparison: headline, table, figure, differences, seeds, failures, commands.

    `published` holds the accuracies of the paper, in per cent. The same cells give the same page.
    """
    summaries = summarise(cells, published)
    sections = [
        _results(summaries),
        _unfinished(summaries),
        _figure(cells),
        _differences(summaries),
        _seeds(cells),
        _commands(cells),
    ]
    about = ""
    if scenario_description:
        about = f'<p class="quiet description">{escape(scenario_description)}</p>\n'
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<header>
<h1>{escape(title)}</h1>
<p class="headline">{_unbroken(headline(summaries))}</p>
{about}</header>
{"".join(sections)}<footer class="quiet">Made by Thalweg {escape(thalweg.__version__)}.</footer>
</main>
</body>
</html>
"""


def _results(summaries: Sequence[Summary]) -> str:
    names, *others = columns(summaries, differences=False)  # they have a section of their own
    main = main_heading(summaries)
    rows, bold = [], best(summaries)
    for row, name in enumerate(names.entries):
        entries = [
            _data(column.entries[row], "best" if row in bold and column.heading == main else "")
            for column in others
        ]
        rows.append(_row(_recipe(name, row), entries))
    table = _table("Results", [names.heading, *(column.heading for column in others)], rows)
    return _section(
        "Results", f'{table}<p class="quiet">{escape(legend(summaries, differences=False))}</p>\n'
    )


def _unfinished(summaries: Sequence[Summary]) -> str:
    cells = unfinished(summaries)
    if not cells:
        return ""
    items = []
    for cell in cells:
        reason = " ".join(cell.reason.split()) or _no_reason(cell)
        ran = f", after {len(cell.rows)} rounds" if cell.rows else ""
        items.append(
            f"<li><strong>{escape(cell.recipe)}</strong>, seed {cell.seed}: "
            f'<span class="unfinished">{cell.status}</span>{ran}: {escape(reason)}</li>\n'
        )
    return _section(
        "Runs that did not finish",
        f"<aside><p>They are in none of the means and not in the figure.</p>\n"
        f"<ul>\n{''.join(items)}</ul></aside>\n",
    )


def _figure(cells: Sequence[Cell]) -> str:
    drawn = panels(cells)
    if not drawn:
        return _section("Accuracy over rounds", "<p>There is no finished run to draw.</p>\n")
    caption = (
        "Lines are means over finished seeds; bands reach one standard deviation to either side. "
        "The climb of the first rounds may lie below the frame."
    )
    names = {curve.recipe for panel in drawn for curve in panel.curves}
    if absent := [recipe for recipe in by_recipe(cells) if recipe not in names]:
        caption += f" Not drawn, for want of a finished run: {', '.join(absent)}."
    return _section(
        "Accuracy over rounds",
        f"<figure>\n{_scrolling('Figure: accuracy over rounds', figure_svg(cells))}"
        f"<figcaption>{escape(caption)}</figcaption>\n</figure>\n",
    )


def _differences(summaries: Sequence[Summary]) -> str:
    first, *others = summaries
    if not others:
        return ""
    of = "test accuracy" if first.compared == "accuracy" else "prequential accuracy"
    rows = []
    for number, s in enumerate(others, start=1):
        difference = s.difference
        entries = [
            _data("0" if difference is None else str(difference.num_seeds)),
            _data(paired_points(difference)),
            _data(p_value(difference and difference.p_value)),
        ]
        rows.append(_row(_recipe(s.recipe, number), entries))
    heads = ["recipe", "shared seeds", "difference, points", "p"]
    note = (
        f"Difference in {of} to {first.recipe}, seed by seed, in percentage points: mean ± "
        "standard deviation. At one seed every recipe meets the same arrivals at the same "
        "clients, so these differences vary less than the accuracies themselves. p: two-sided "
        f"paired t-test, from {FEWEST_FOR_A_TEST} shared seeds on, not corrected for the number "
        "of recipes."
    )
    return _section(
        "Paired differences",
        _table("Paired differences", heads, rows) + f'<p class="quiet">{escape(note)}</p>\n',
    )


def _seeds(cells: Sequence[Cell]) -> str:
    heads = ["recipe", "seed", "status", "rounds", "accuracy", "mean state", "worst state"]
    heads += ["prequential", "MB sent", "time, s"]
    rows = []
    for place, group in enumerate(by_recipe(cells).values()):
        for cell in group:
            s = scores(cell)
            entries = [
                _data(str(cell.seed)),
                _data(cell.status, "" if cell.is_done else "unfinished"),
                _data(str(len(cell.rows))),
                *(_data(percent(value)) for value in s[:4]),
                _data(f"{s.megabytes:.1f}"),
                _data(f"{s.seconds:.1f}"),
            ]
            rows.append(_row(_recipe(cell.recipe, place), entries))
    note = "Accuracies in %; of a run that did not finish, those of its last evaluated round."
    return _section(
        "Seed by seed", _table("Seed by seed", heads, rows) + f'<p class="quiet">{note}</p>\n'
    )


def _commands(cells: Sequence[Cell]) -> str:
    parts = []
    for recipe, group in by_recipe(cells).items():
        lines = "\n".join(
            f"# seed {cell.seed}, {cell.status}\n{cell.command.strip()}" for cell in group
        )
        parts.append(
            f"<h3>{escape(recipe)}</h3>\n"
            f'<pre tabindex="0" aria-label="{escape(f"Commands of {recipe}")}">'
            f"{escape(lines)}</pre>\n"
        )
    return _section("Commands", "".join(parts))


def _no_reason(cell: Cell) -> str:
    return "it has not been run" if cell.status == "missing" else "no reason was recorded"


def _unbroken(text: str) -> str:
    """A sentence whose numbers are not torn apart at the end of a line."""
    text = escape(text)
    for part in (" ± ", " %", "p = ", "p &lt; "):
        text = text.replace(part, part.replace(" ", "&nbsp;"))
    return text


def _section(heading: str, content: str) -> str:
    return f"<section>\n<h2>{escape(heading)}</h2>\n{content}</section>\n"


def _table(label: str, headings: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{''.join(rows)}</tbody>\n</table>"
    return _scrolling(f"Table: {label.lower()}", table)


def _scrolling(label: str, content: str) -> str:
    """Wide content scrolls by itself on a narrow screen, also with the keyboard."""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">\n'
        f"{content}\n</div>\n"
    )


def _row(head: str, entries: Sequence[str]) -> str:
    return f"<tr>{head}{''.join(entries)}</tr>\n"


def _recipe(name: str, place: int) -> str:
    colour = f"var(--series-{place % len(COLOURS) + 1})"
    key = f'<span class="key" style="background: {colour}" aria-hidden="true"></span>'
    return f'<th scope="row"><span class="name">{key}<span>{escape(name)}</span></span></th>'


def _data(text: str, kind: str = "") -> str:
    return f'<td class="{kind}">{escape(text)}</td>' if kind else f"<td>{escape(text)}</td>"
