"""Sweeps in a study: columns, or rows, that differ in the value of one thing, as curves over it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from thalweg.report.curves import MEASURES, Curve, Panel
from thalweg.report.study import StudyResult
from thalweg.report.summary import Spread, Summary

FEWEST_VALUES = 3  # two points are a difference, not a sweep

Swept = dict[str, dict[float, str]]  # what is swept -> value -> the label it has


def column_sweeps(result: StudyResult) -> list[Panel]:
    """One panel per scenario and thing that the columns sweep; one line per row."""
    found = result.summaries()
    drawn = []
    for scenario in dict.fromkeys(column.scenario for column in result.study.columns):
        labels = {c.label: c.note for c in result.study.columns if c.scenario == scenario}
        for name, values in swept(labels).items():
            columns = {at: {s.recipe: s for s in found[label]} for at, label in values.items()}
            rows = dict.fromkeys(row for column in columns.values() for row in column)
            curves = [
                _curve(row, place, {at: column.get(row) for at, column in columns.items()})
                for place, row in enumerate(rows)
            ]
            drawn += _panel(
                curves, name, scenario, [s for c in columns.values() for s in c.values()]
            )
    return drawn


def row_sweeps(summaries: Sequence[Summary]) -> list[Panel]:
    """One panel per thing that the rows sweep, in one column: beside it, the row they are set against."""
    found = {s.recipe: s for s in summaries}
    drawn = []
    for name, values in swept({row: row for row in found}).items():
        mine = {at: found[row] for at, row in values.items()}
        curves = [_curve(name, 0, mine)]
        others = dict.fromkeys(s.against for s in mine.values())
        for place, other in enumerate((o for o in others if o), start=1):
            if other in found and other not in values.values():
                curves.append(_curve(other, place, dict.fromkeys(mine, found[other])))
        drawn += _panel(curves, name, summaries[0].scenario, list(mine.values()))
    return drawn


def swept(labels: Mapping[str, str]) -> Swept:
    """What notes such as ``T=5`` or ``noise 0.2`` sweep; `labels` maps a label to its note.

    >>> swept({"a1=1": "a1=1", "plain": "plain", "a1=2": "a1=2", "a1=0.5": "a1=0.5", "b=1": "b=1"})
    {'a1': {0.5: 'a1=0.5', 1.0: 'a1=1', 2.0: 'a1=2'}}
    """
    found: Swept = {}
    for label, note in labels.items():
        if match := re.fullmatch(r"([^\s=]+)[= ](-?\d+(?:\.\d+)?)", note):
            found.setdefault(match[1], {})[float(match[2])] = label
    return {
        name: dict(sorted(values.items()))
        for name, values in found.items()
        if len(values) >= FEWEST_VALUES
    }


def _panel(
    curves: Sequence[Curve | None], name: str, where: str, summaries: Sequence[Summary]
) -> list[Panel]:
    """None or one; of a single line there is nothing to see before it has two points."""
    known = [curve for curve in curves if curve is not None]
    if not any(len(curve.at) > 1 for curve in known):
        return []
    measure = MEASURES[summaries[0].compared]
    return [Panel(f"{measure} over {name}, {where}", known, across=name)]


def _curve(name: str, place: int, points: Mapping[float, Summary | None]) -> Curve | None:
    measured = {at: s.main for at, s in points.items() if s is not None and s.main is not None}
    if not measured:
        return None
    return Curve(
        name,
        place,
        at=list(measured),
        mean=[100 * s.mean for s in measured.values()],
        low=list(_edges(measured.values(), -1)),
        high=list(_edges(measured.values(), +1)),
    )


def _edges(spreads: Iterable[Spread], side: int) -> Iterable[float]:
    """One standard deviation to a side, within 0 and 100 per cent."""
    for mean, std, _ in spreads:
        yield 100 * min(max(mean + side * (std or 0.0), 0.0), 1.0)
