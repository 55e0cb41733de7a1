"""A comparison as one HTML page that needs nothing else: no network, no script, no other file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from thalweg.report import sections
from thalweg.report.cells import Cell
from thalweg.report.event_tables import event_tables
from thalweg.report.extras import extra_section
from thalweg.report.files import write_atomically
from thalweg.report.headline import headline
from thalweg.report.summary import summarise
from thalweg.report.transitions import transition_section


def write_page(
    path: str | os.PathLike[str],
    title: str,
    cells: Sequence[Cell],
    scenario_description: str | None = None,
    published: Mapping[str, float] | None = None,
) -> None:
    """Write the page of a comparison, whole or not at all. See `page`."""
    text = page(title, cells, scenario_description, published)
    write_atomically(Path(path), text.encode("utf-8"))


def page(
    title: str,
    cells: Sequence[Cell],
    scenario_description: str | None = None,
    published: Mapping[str, float] | None = None,
) -> str:
    """The page of a comparison: headline, tables, figures, differences, seeds, failures, commands.

    `published` holds the accuracies of the paper, in per cent. The same cells give the same page.
    """
    summaries = summarise(cells, published)
    parts = [
        sections.results_section(summaries),
        sections.unfinished_section(summaries),
        transition_section(cells),
        *map(extra_section, event_tables(cells)),
        sections.figure_section(cells),
        sections.bank_section(cells),
        sections.differences_section(summaries),
        sections.seeds_section(cells),
        sections.commands_section(cells),
    ]
    about = ""
    if scenario_description:
        about = f'<p class="quiet description">{escape(scenario_description)}</p>\n'
    return sections.document(title, headline(summaries), about, "".join(parts))
