"""The table of a comparison for other programs: CSV, one number per field."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from thalweg.core.errors import require
from thalweg.report.summary import Spread, Summary
from thalweg.report.table import short_status_line


def to_csv(summaries: Sequence[Summary]) -> str:
    """The table for other programs: one number per field, always the same columns, empty: none.

    Accuracies and differences are in per cent with four decimals, so that a table with two can be
    made of them without rounding twice.
    """
    require(len(summaries) > 0, "there is nothing to show: no summaries were given.")
    return csv_text([to_record(s) for s in summaries])


def csv_text(records: Sequence[Mapping[str, str]]) -> str:
    """Records with the same fields, under a line with their names."""
    file = io.StringIO()
    writer = csv.DictWriter(file, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return file.getvalue()


def to_record(s: Summary) -> dict[str, str]:
    """One summary as fields of text."""
    difference = s.difference
    return {
        "recipe": s.recipe,
        "scenario": s.scenario,
        "seeds_done": str(s.num_done),
        "seeds_requested": str(s.num_requested),
        **_mean_std_fields("accuracy_percent", s.accuracy, 100),
        **_mean_std_fields("state_accuracy_percent", s.state_accuracy, 100),
        **_mean_std_fields("worst_state_accuracy_percent", s.worst_state_accuracy, 100),
        **_mean_std_fields("prequential_accuracy_percent", s.prequential_accuracy, 100),
        **_mean_std_fields("megabytes", s.megabytes, 1),
        **_mean_std_fields("seconds", s.seconds, 1),
        "compared_by": s.main_metric,
        "difference_points_mean": _field(difference and 100 * difference.mean),
        "difference_points_std": _field(
            None if difference is None or difference.std is None else 100 * difference.std
        ),
        "difference_p_value": ""
        if difference is None or difference.p_value is None
        else f"{difference.p_value:.6g}",
        "difference_seeds": str(difference.num_seeds) if difference else "0",
        "published_percent": _field(s.published),
        "points_from_published": _field(s.points_from_published),
        "unfinished": "; ".join(short_status_line(cell) for cell in s.unfinished_cells),
        "difference_to": s.against or "",
        "published_spread": _field(s.published_spread),
        "published_difference_points": _field(s.published_difference),
        **_mean_std_fields("balanced_accuracy_percent", s.balanced_accuracy, 100),
    }


def _mean_std_fields(name: str, spread: Spread | None, scale: float) -> dict[str, str]:
    std = None if spread is None or spread.std is None else scale * spread.std
    mean = None if spread is None else scale * spread.mean
    return {f"{name}_mean": _field(mean), f"{name}_std": _field(std)}


def _field(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
