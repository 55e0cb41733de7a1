"""What alarms were worth: a line for a single run, a small table for several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from thalweg.report.cells import Cell, group_by_recipe
from thalweg.report.extras import ExtraTable
from thalweg.report.numbers import NONE, amount
from thalweg.report.summary import spread
from thalweg.report.table import TableColumn

TITLE = "Alarms"
CAPTION = (
    "alarms: raised in a run, over all clients. noticed: drifts with an alarm after them, before the client's next "
    "drift, of all seeds together; late: after how many rounds, on average over those. false: alarms without a "
    "drift that was still to be noticed. Where nothing drifts, or nobody knows of it, alarms are only counted."
)

AlarmSummary = Mapping[str, Any]  # what `evaluation.alarm_summary` has of one run


def alarm_line(found: AlarmSummary) -> str:
    """One line, of what `evaluation.alarm_summary` found.

    >>> alarm_line({"raised": 2})
    '2 raised; the world does not say when it changes'
    >>> alarm_line({"raised": 5, "drifts": 4, "missed": 1, "false_alarms": 2, "mean_delay": 1.5})
    '5 raised, 2 of them false; 3 of 4 drifts noticed, 1.5 rounds late on average'
    """
    if "drifts" not in found:
        return f"{found['raised']} raised; the world does not say when it changes"
    noticed = found["drifts"] - found["missed"]
    late = "" if not noticed else f", {found['mean_delay']:.1f} rounds late on average"
    return (
        f"{found['raised']} raised, {found['false_alarms']} of them false; "
        f"{noticed} of {found['drifts']} drifts noticed{late}"
    )


def alarm_extra(cells: Sequence[Cell]) -> ExtraTable:
    """Recipe by recipe, over the finished seeds; no columns if no finished run has an alarm."""
    return ExtraTable(TITLE, alarm_columns(cells), CAPTION)


def alarm_columns(cells: Sequence[Cell]) -> list[TableColumn]:
    groups = {
        recipe: [cell.alarms for cell in group if cell.is_done and cell.alarms is not None]
        for recipe, group in group_by_recipe(cells).items()
    }
    if not any(groups.values()):
        return []
    shown = [
        TableColumn("alarms", [_average("raised", seeds) for seeds in groups.values()]),
        TableColumn("noticed", [_format_detected(seeds) for seeds in groups.values()]),
        TableColumn("late", [_format_delay(seeds) for seeds in groups.values()]),
        TableColumn("false", [_average("false_alarms", seeds) for seeds in groups.values()]),
    ]
    return [
        TableColumn("recipe", list(groups)),
        *(column for column in shown if set(column.entries) != {NONE}),
    ]


def _average(name: str, seeds: Sequence[AlarmSummary]) -> str:
    return amount(spread(found.get(name) for found in seeds))


def _format_detected(seeds: Sequence[AlarmSummary]) -> str:
    drifts = sum(found.get("drifts", 0) for found in seeds)
    missed = sum(found.get("missed", 0) for found in seeds)
    return f"{drifts - missed} of {drifts}" if drifts else NONE


def _format_delay(seeds: Sequence[AlarmSummary]) -> str:
    """Every drift that was noticed counts the same, whatever its seed."""
    delays = [
        delay
        for found in seeds
        if (delay := found.get("mean_delay")) is not None
        for _ in range(found["drifts"] - found["missed"])
    ]
    return f"{fmean(delays):.1f}" if delays else NONE
