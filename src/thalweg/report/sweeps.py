"""Sweeps in a study: columns or rows that differ in one value, as curves over that value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from thalweg.report.curves import Curve, Panel, panel_title
from thalweg.report.study import StudyResult
from thalweg.report.summary import Spread, Summary

MIN_SWEEP_VALUES = 3  # two points are a difference, not a sweep

Sweeps = dict[str, dict[float, str]]  # name -> value -> label


def column_sweeps(result: StudyResult) -> list[Panel]:
    """One panel per scenario and swept value of the columns; one curve per row."""
    found = result.summaries()
    drawn = []
    for scenario in dict.fromkeys(column.scenario for column in result.study.columns):
        labels = {c.label: c.note for c in result.study.columns if c.scenario == scenario}
        for name, values in find_sweeps(labels).items():
            columns = {x: {s.recipe: s for s in found[label]} for x, label in values.items()}
            rows = dict.fromkeys(row for column in columns.values() for row in column)
            curves = [
                _curve(row, index, {x: column.get(row) for x, column in columns.items()})
                for index, row in enumerate(rows)
            ]
            drawn += _panel(
                curves, name, scenario, [s for c in columns.values() for s in c.values()]
            )
    return drawn


def row_sweeps(summaries: Sequence[Summary]) -> list[Panel]:
    """One panel per swept value of the rows of one column, with the reference row."""
    found = {s.recipe: s for s in summaries}
    drawn = []
    for name, values in find_sweeps({row: row for row in found}).items():
        mine = {x: found[row] for x, row in values.items()}
        curves = [_curve(name, 0, mine)]
        others = dict.fromkeys(s.against for s in mine.values())
        for index, other in enumerate((o for o in others if o), start=1):
            if other in found and other not in values.values():
                curves.append(_curve(other, index, dict.fromkeys(mine, found[other])))
        drawn += _panel(curves, name, summaries[0].scenario, list(mine.values()))
    return drawn


def find_sweeps(labels: Mapping[str, str]) -> Sweeps:
    """Sweeps in notes such as ``T=5`` or ``noise 0.2``; `labels` maps a label to its note.

    >>> labels = ["a1=1", "plain", "a1=2", "a1=0.5", "b=1"]
    >>> find_sweeps({label: label for label in labels})
    {'a1': {0.5: 'a1=0.5', 1.0: 'a1=1', 2.0: 'a1=2'}}
    """
    found: Sweeps = {}
    for label, note in labels.items():
        if match := re.fullmatch(r"([^\s=]+)[= ](-?\d+(?:\.\d+)?)", note):
            found.setdefault(match[1], {})[float(match[2])] = label
    return {
        name: dict(sorted(values.items()))
        for name, values in found.items()
        if len(values) >= MIN_SWEEP_VALUES
    }


def _panel(
    curves: Sequence[Curve | None], name: str, where: str, summaries: Sequence[Summary]
) -> list[Panel]:
    """A list with one panel; empty if no curve has two points."""
    known = [curve for curve in curves if curve is not None]
    if not any(len(curve.x) > 1 for curve in known):
        return []
    metric = panel_title(summaries[0].shown_metric)
    unit = "%" if summaries[0].shown_metric.unit == "share" else ""
    return [Panel(f"{metric} over {name}, {where}", known, x_name=name, unit=unit)]


def _curve(name: str, index: int, points: Mapping[float, Summary | None]) -> Curve | None:
    measured = {x: s.main for x, s in points.items() if s is not None and s.main is not None}
    if not measured:
        return None
    is_share = next(s for s in points.values() if s is not None).shown_metric.unit == "share"
    return Curve(
        name,
        index,
        x=list(measured),
        mean=[(100 if is_share else 1) * s.mean for s in measured.values()],
        low=list(_edges(measured.values(), -1, is_share)),
        high=list(_edges(measured.values(), +1, is_share)),
    )


def _edges(spreads: Iterable[Spread], side: int, is_share: bool) -> Iterable[float]:
    """One standard deviation to a side; of a share, in per cent, within 0 and 100."""
    for mean, std, _ in spreads:
        edge = mean + side * (std or 0.0)
        yield 100 * min(max(edge, 0.0), 1.0) if is_share else edge
