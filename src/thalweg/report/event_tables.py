"""What happened to runs while they learnt, each in a small table of its own."""

from __future__ import annotations

from collections.abc import Sequence

from thalweg.report.alarms import alarm_extra
from thalweg.report.cells import Cell
from thalweg.report.drifts import drift_extra
from thalweg.report.extras import ExtraTable


def event_tables(cells: Sequence[Cell]) -> list[ExtraTable]:
    """Drifts, and the alarms about them; what there was none of is left out."""
    return [extra for extra in (drift_extra(cells), alarm_extra(cells)) if extra.columns]
