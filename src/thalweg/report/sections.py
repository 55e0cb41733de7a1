"""The parts of a page, as HTML: what the page of a comparison and that of a study are made of."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import thalweg
from thalweg.report.cells import Cell, group_by_recipe, is_noticeable_gap, scores
from thalweg.report.curves import bank_panels, panels
from thalweg.report.figure import COLOURS, figure_svg, panels_svg
from thalweg.report.numbers import p_value, paired_points, percent, points
from thalweg.report.style import STYLE
from thalweg.report.summary import MIN_SEEDS_FOR_TEST, Summary
from thalweg.report.table import best, columns, legend, main_heading, unfinished_cells

# Even if something slipped through the escaping, the browser would not run or fetch it.
CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def document(title: str, headline: str, about: str, body: str) -> str:
    """A whole page; `about` and `body` are HTML, the others text."""
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
<p class="headline">{_add_nonbreaking_spaces(headline)}</p>
{about}</header>
{body}<footer class="quiet">Made by Thalweg {escape(thalweg.__version__)}.</footer>
</main>
</body>
</html>
"""


def results_section(summaries: Sequence[Summary], *, level: int = 2) -> str:
    """The table of one scenario, without the differences, which have a section of their own."""
    names, *others = columns(summaries, differences=False)
    main = main_heading(summaries)
    rows, bold = [], best(summaries)
    for row, name in enumerate(names.entries):
        entries = [
            entry(column.entries[row], "best" if row in bold and column.heading == main else "")
            for column in others
        ]
        rows.append(table_row(recipe_head(name, row), entries))
    table = html_table("Results", [names.heading, *(column.heading for column in others)], rows)
    note = escape(legend(summaries, differences=False))
    return section("Results", f'{table}<p class="quiet">{note}</p>\n', level=level)


def unfinished_section(summaries: Sequence[Summary], *, with_scenario: bool = False) -> str:
    """Every run that is not in the numbers, and why; those not run yet together."""
    cells = unfinished_cells(summaries)
    if not cells:
        return ""
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        alone = () if cell.status == "missing" else (str(cell.seed),)
        groups.setdefault((cell.scenario, cell.recipe, *alone), []).append(cell)
    items = "".join(_unfinished_item(group, with_scenario) for group in groups.values())
    return section(
        "Runs that did not finish",
        f"<aside><p>They are in none of the means and not in the figure.</p>\n"
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
    """Curves with bands, or a sentence if there is nothing to draw."""
    drawn = panels(cells)
    if not drawn:
        nothing = "<p>There is no finished run to draw.</p>\n"
        return section("Accuracy over rounds", nothing, level=level)
    caption = (
        "Lines are means over finished seeds; bands reach one standard deviation to either side. "
        "The climb of the first rounds may lie below the frame."
    )
    names = {curve.recipe for panel in drawn for curve in panel.curves}
    if absent := [recipe for recipe in group_by_recipe(cells) if recipe not in names]:
        caption += f" Not drawn, for want of a finished run: {', '.join(absent)}."
    return section(
        "Accuracy over rounds",
        f"<figure>\n{scroll_region('Figure: accuracy over rounds', figure_svg(cells))}"
        f"<figcaption>{escape(caption)}</figcaption>\n</figure>\n",
        level=level,
    )


def bank_section(cells: Sequence[Cell], *, level: int = 2) -> str:
    """How many models there were, and what was found out about clusters and drifts; nothing if nobody counted."""
    drawn = bank_panels(cells)
    if not drawn:
        return ""
    caption = (
        "Means over finished seeds; bands reach one standard deviation to either side. Recipes with one model "
        "are not drawn."
    )
    return section(
        "Models over rounds",
        f"<figure>\n{scroll_region('Figure: models over rounds', panels_svg(drawn))}"
        f"<figcaption>{escape(caption)}</figcaption>\n</figure>\n",
        level=level,
    )


def differences_section(summaries: Sequence[Summary], *, level: int = 2) -> str:
    """How recipes differ seed by seed, with the paper's difference beside ours if it has one."""
    pairs = [(index, s) for index, s in enumerate(summaries) if s.against]
    if not pairs:
        return ""
    of = "test accuracy" if summaries[0].main_metric == "accuracy" else "prequential accuracy"
    others = list(dict.fromkeys(s.against for _, s in pairs if s.against))
    has_paper = any(s.published_difference is not None for _, s in pairs)
    rows = []
    for index, s in pairs:
        difference = s.difference
        entries = [
            *([entry(s.against or "")] if len(others) > 1 else []),
            entry("0" if difference is None else str(difference.num_seeds)),
            entry(paired_points(difference)),
            entry(p_value(difference and difference.p_value)),
            *([entry(points(s.published_difference))] if has_paper else []),
        ]
        rows.append(table_row(recipe_head(s.recipe, index), entries))
    heads = ["recipe", *(["against"] if len(others) > 1 else []), "shared seeds"]
    heads += ["difference, points", "p", *(["paper's difference"] if has_paper else [])]
    to = others[0] if len(others) == 1 else "the recipe it is set against"
    note = (
        f"Difference in {of} to {to}, seed by seed, in percentage points: mean ± "
        "standard deviation. At one seed every recipe meets the same arrivals at the same "
        "clients, so these differences vary less than the accuracies themselves. p: two-sided "
        f"paired t-test, from {MIN_SEEDS_FOR_TEST} shared seeds on, not corrected for the number "
        "of recipes."
    )
    return section(
        "Paired differences",
        html_table("Paired differences", heads, rows) + f'<p class="quiet">{escape(note)}</p>\n',
        level=level,
    )


def seeds_section(cells: Sequence[Cell], *, level: int = 2) -> str:
    """Every run by itself."""
    needs_balanced = any(
        is_noticeable_gap(s.accuracy, s.balanced_accuracy) for s in map(scores, cells)
    )
    heads = ["recipe", "seed", "status", "rounds", "accuracy", "mean state", "worst state"]
    heads += ["prequential", *(["balanced"] if needs_balanced else []), "MB sent", "time, s"]
    rows = []
    for index, group in enumerate(group_by_recipe(cells).values()):
        for cell in group:
            s = scores(cell)
            entries = [
                entry(str(cell.seed)),
                entry(cell.status, "" if cell.is_done else "unfinished"),
                entry(str(len(cell.rows))),
                *(entry(percent(value)) for value in s[:4]),
                *([entry(percent(s.balanced_accuracy))] if needs_balanced else []),
                entry(f"{s.megabytes:.1f}"),
                entry(f"{s.seconds:.1f}"),
            ]
            rows.append(table_row(recipe_head(cell.recipe, index), entries))
    note = "Accuracies in %; of a run that did not finish, those of its last evaluated round."
    table = html_table("Seed by seed", heads, rows)
    return section("Seed by seed", f'{table}<p class="quiet">{note}</p>\n', level=level)


def commands_section(cells: Sequence[Cell], *, level: int = 2) -> str:
    """What to type for each run alone."""
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
    """A sentence whose numbers are not torn apart at the end of a line."""
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
    """Wide content scrolls by itself on a narrow screen, also with the keyboard."""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">\n'
        f"{content}\n</div>\n"
    )


def table_row(head: str, entries: Sequence[str]) -> str:
    return f"<tr>{head}{''.join(entries)}</tr>\n"


def recipe_head(name: str, index: int) -> str:
    colour = f"var(--series-{index % len(COLOURS) + 1})"
    key = f'<span class="key" style="background: {colour}" aria-hidden="true"></span>'
    return f'<th scope="row"><span class="name">{key}<span>{escape(name)}</span></span></th>'


def entry(text: str, kind: str = "") -> str:
    return f'<td class="{kind}">{escape(text)}</td>' if kind else f"<td>{escape(text)}</td>"
