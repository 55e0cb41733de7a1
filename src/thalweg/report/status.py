"""How much of the five papers has been measured, from the stored cells of the studies."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import NamedTuple

from thalweg.report.measured import MeasuredCell, find_study_of_file, split_name
from thalweg.scenarios.studies import STUDIES, Column, Study
from thalweg.scenarios.studies.papers import PAPERS, Exhibit

MIN_ROWS = 3  # of an order
STATUS_LEGEND = (
    "cells: published accuracies. run: measured ones; of a figure, its points. within: two points "
    "or two of the paper's standard deviations. tau: Kendall's tau of the row order, averaged over "
    "columns. scale: paper, or reduced (net, clients, samples or rounds); +: also measured on data "
    "for which the paper has no number. seeds: per cell. If several rows or scales are compared "
    "with a published cell, the first one in the study counts."
)

Measured = Mapping[str, Sequence[MeasuredCell]]


class ExhibitStatus(NamedTuple):
    """One table or figure of a paper, and what was measured of it."""

    paper: str
    table: str
    content: str
    cells: int
    """Published accuracies; 0 for a figure."""
    run: int
    """Published cells that were measured; of a figure, entries of its studies."""
    within: int
    """Measured cells within two points or two of the paper's standard deviations."""
    tau_of: Mapping[str, float]
    """Kendall's tau of the row order, by column; only columns with at least three rows."""
    scale: str
    """paper, reduced or both, and other data, if that was measured; empty: nothing was measured."""
    seeds: str
    """Seeds per cell, such as ``3`` or ``1-3``."""
    studies: tuple[str, ...]

    @property
    def tau(self) -> float | None:
        """The mean over the columns; None without one."""
        return fmean(self.tau_of.values()) if self.tau_of else None

    @property
    def command(self) -> str:
        """The command that runs it; empty if there is no study."""
        return " && ".join(map(format_command, self.studies))


class Entry(NamedTuple):
    """An entry of a study that shows a published number, with our measurement."""

    study: Study
    column: Column
    cell: MeasuredCell


def make_status(measured: Measured) -> list[ExhibitStatus]:
    """Return the tables and figures with results of all papers, in the order of the papers."""
    return [
        _make_exhibit_status(paper, exhibit, measured)
        for paper, about in PAPERS.items()
        for exhibit in about.exhibits
        if exhibit.has_results
    ]


def format_command(study: str) -> str:
    """Return the command that runs a study, also on another data set.

    >>> format_command("sfedpo-figure-2-fashion-mnist")
    'thalweg reproduce sfedpo-figure-2 --data fashion-mnist'
    """
    name, data = split_name(study)
    return shlex.join(["thalweg", "reproduce", name, *(["--data", data] if data else [])])


def _make_exhibit_status(paper: str, exhibit: Exhibit, measured: Measured) -> ExhibitStatus:
    studies = _find_studies(paper, exhibit)
    entries = _find_entries(exhibit, studies, measured)
    chosen = choose_entries(entries)
    shown = list(chosen.values()) if exhibit.cells else entries
    scales = sorted({"reduced" if entry.column.is_reduced else "paper" for entry in shown})
    scale = "both" if len(scales) > 1 else "".join(scales)
    if exhibit.cells and _has_other_data(entries):
        scale = f"{scale}, other data".removeprefix(", ")
    numbers = [len(entry.cell.seeds) for entry in shown]
    return ExhibitStatus(
        paper=paper,
        table=exhibit.name,
        content=exhibit.content,
        cells=exhibit.cells,
        run=len(shown),
        within=sum(entry.cell.is_within for entry in chosen.values()) if exhibit.cells else 0,
        tau_of=_taus(entries, shown) if exhibit.cells else {},
        scale=scale,
        seeds=_format_range(numbers),
        studies=tuple(studies),
    )


def _has_other_data(entries: Iterable[Entry]) -> bool:
    """Return whether an entry is from a scenario for which its study has no published number."""
    for study, column, _ in entries:
        with_numbers = {label for _, label in study.published}
        known = {each.scenario for each in study.columns if each.label in with_numbers}
        if column.scenario not in known:
            return True
    return False


def _find_studies(paper: str, exhibit: Exhibit) -> dict[str, Study]:
    """Return the studies of a table or figure, by name; the widest first."""
    own = [
        study
        for study in STUDIES.values()
        if study.paper == paper
        and any(study.table_of(column) == exhibit.name for column in study.columns)
    ]
    named = [find_study_of_file(name) for name in exhibit.studies]
    return {study.name: study for study in (*own, *named)}


def _find_entries(
    exhibit: Exhibit, studies: Mapping[str, Study], measured: Measured
) -> list[Entry]:
    """Return the measured entries of the studies, column by column, in the order of their rows."""
    found = []
    for name, study in studies.items():
        cells = {(cell.row, cell.column): cell for cell in measured.get(name, ())}
        for column in study.columns:
            if name not in exhibit.studies and study.table_of(column) != exhibit.name:
                continue
            for row in study.rows_of(column):
                if (row.label, column.label) in cells:
                    found.append(Entry(study, column, cells[row.label, column.label]))
    return found


def choose_entries(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Return one entry for each published cell: the first one, in the order of the study."""
    chosen: dict[str, Entry] = {}
    for entry in entries:
        name = entry.study.published_cell(entry.cell.row, entry.cell.column)
        if name is not None:
            chosen.setdefault(name, entry)
    return chosen


def _taus(entries: Sequence[Entry], chosen: Sequence[Entry]) -> dict[str, float]:
    """Return the tau of each column, over chosen entries and those with computed numbers.

    Columns without a chosen entry show the cells of another column once more.
    """
    columns: dict[tuple[str, str], list[tuple[float, float]]] = {}
    counted = {(entry.study.name, entry.cell.column) for entry in chosen}
    for entry in entries:
        cell, study = entry.cell, entry.study
        is_computed = study.published_cell(cell.row, cell.column) is None
        is_chosen = any(entry is other for other in chosen)
        is_counted = (study.name, cell.column) in counted
        if cell.published is not None and is_counted and (is_computed or is_chosen):
            pairs = columns.setdefault((study.name, cell.column), [])
            pairs.append((cell.mean, cell.published))
    taus = {
        column: kendall_tau(pairs)
        for (_, column), pairs in columns.items()
        if len(pairs) >= MIN_ROWS
    }
    return {column: tau for column, tau in taus.items() if tau is not None}


def kendall_tau(pairs: Sequence[tuple[float, float]]) -> float | None:
    r"""Kendall's tau-b of two rankings; None if one of them has equal values only.

    .. math::  \tau_b = \frac{C - D}{\sqrt{(n_0 - n_1)(n_0 - n_2)}}

    C and D are the numbers of concordant and discordant pairs, n_0 that of all pairs, n_1 and n_2
    those of ties. Kendall, "The treatment of ties in ranking problems", 1945.

    >>> kendall_tau([(1.0, 10.0), (2.0, 30.0), (3.0, 20.0)])  # (2 - 1) / 3
    0.333...
    """
    score = first = second = 0
    for (x, y), (u, v) in combinations(pairs, 2):
        a, b = (x > u) - (x < u), (y > v) - (y < v)
        score += a * b
        first += a * a
        second += b * b
    return score / math.sqrt(first * second) if first * second else None


def _format_range(numbers: Sequence[int]) -> str:
    if not numbers:
        return ""
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}-{high}"


def to_record(status: ExhibitStatus) -> dict[str, object]:
    """Return a status as plain values for JSON; None: not applicable."""
    has_cells = status.cells > 0
    return {
        "paper": status.paper,
        "table": status.table,
        "content": status.content,
        "cells": status.cells if has_cells else None,
        "run": status.run,
        "within": status.within if has_cells else None,
        "tau": None if status.tau is None else round(status.tau, 2),
        "scale": status.scale or None,
        "seeds": status.seeds or None,
        "command": status.command or None,
        "tau_of": {column: round(tau, 2) for column, tau in status.tau_of.items()},
    }


def to_texts(status: ExhibitStatus) -> list[str]:
    """Return cells, run, within, tau, scale and seeds as texts; empty: not applicable."""
    has_cells = status.cells > 0
    return [
        str(status.cells) if has_cells else "",
        str(status.run),
        str(status.within) if has_cells and status.run else "",
        "" if status.tau is None else f"{status.tau:.2f}",
        status.scale,
        status.seeds,
    ]
