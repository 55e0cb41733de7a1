"""Tables as Markdown, as CSV and for the terminal, and the files of reports."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from thalweg.core.errors import RunError, require
from thalweg.core.files import PUBLIC_MODE, write_file
from thalweg.core.metrics import Metric, metrics_in
from thalweg.report.summary import Spread, Summary, rank
from thalweg.report.table import (
    ExtraTable,
    TableColumn,
    best,
    columns,
    legend,
    main_heading,
    short_status_line,
    status_line,
    unfinished_cells,
)

if TYPE_CHECKING:
    from rich.table import Table

COLUMN_GAP = 2  # spaces after a column; one of them belongs to the box


def to_markdown(summaries: Sequence[Summary]) -> str:
    """The table in Markdown, from the best recipe to the worst, and the unfinished runs."""
    summaries = rank(summaries)
    shown, bold = columns(summaries), best(summaries)
    lines = [
        markdown_row([escape_markdown(column.heading) for column in shown]),
        markdown_row(["---" if c.heading in ("recipe", "seeds") else "---:" for c in shown]),
    ]
    for row in range(len(summaries)):
        texts = [escape_markdown(column.entries[row]) for column in shown]
        is_bold = [row in bold and column.heading == main_heading(summaries) for column in shown]
        marked = zip(texts, is_bold, strict=True)
        lines.append(markdown_row([f"**{text}**" if strong else text for text, strong in marked]))
    lines += ["", escape_markdown(legend(summaries))]
    if left_out := unfinished_cells(summaries):
        lines += ["", "Not finished, and not in the numbers:", ""]
        lines += [f"- {escape_markdown(status_line(cell))}" for cell in left_out]
    return "\n".join(lines) + "\n"


def extra_markdown(extra: ExtraTable, *, level: int = 2) -> str:
    """A small table in Markdown; empty if the table has no columns."""
    if not (shown := extra.columns):
        return ""
    lines = [
        f"{'#' * level} {extra.title}\n",
        markdown_row([column.heading for column in shown]),
        markdown_row(["---", *("---:" for _ in shown[1:])]),
        *(
            markdown_row([escape_markdown(column.entries[row]) for column in shown])
            for row in range(len(shown[0].entries))
        ),
    ]
    return "\n" + "\n".join([*lines, "", extra.caption]) + "\n"


def markdown_row(texts: Sequence[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", text)


def to_csv(summaries: Sequence[Summary]) -> str:
    """The table as CSV: one number per field; empty: not measured.

    The columns are always the same; those of the headline metric come first.

    Accuracies and their differences are in per cent with four decimals, so that they can be rounded
    to two without rounding twice. Differences of other metrics are in the unit of the metric.
    """
    require(len(summaries) > 0, "there is nothing to show: no summaries were given.")
    return csv_text([to_record(s) for s in rank(summaries)])


def csv_text(records: Sequence[Mapping[str, str]]) -> str:
    """Records below a line with the names of their fields; a missing field is empty."""
    file = io.StringIO()
    names = list(dict.fromkeys(name for record in records for name in record))
    writer = csv.DictWriter(file, fieldnames=names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return file.getvalue()


def to_record(s: Summary) -> dict[str, str]:
    """One summary as fields of text."""
    difference, scale = s.difference, s.headline.scale
    others = [*metrics_in("table"), *s.own_metrics.values()]
    shown = [s.headline, *(metric for metric in others if metric.name != s.main_metric)]
    metrics = [_metric_fields(metric, s.spreads.get(metric.name)) for metric in shown]
    return {
        "recipe": s.recipe,
        "scenario": s.scenario,
        "seeds_done": str(s.num_done),
        "seeds_requested": str(s.num_requested),
        **{name: text for fields in metrics for name, text in fields.items()},
        "compared_by": s.main_metric,
        "difference_points_mean": _field(difference and scale * difference.mean),
        "difference_points_std": _field(
            None if difference is None or difference.std is None else scale * difference.std
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
        "identical_to": s.identical_to or "",
        "is_deterministic": "yes" if s.is_deterministic else "no",
        "difference_tests": str(difference.num_tests) if difference else "0",
    }


def _metric_fields(metric: Metric, spread: Spread | None) -> dict[str, str]:
    std = None if spread is None or spread.std is None else metric.scale * spread.std
    mean = None if spread is None else metric.scale * spread.mean
    return {f"{metric.csv_field}_mean": _field(mean), f"{metric.csv_field}_std": _field(std)}


def _field(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def to_rich(summaries: Sequence[Summary], *, width: int = 80) -> Table:
    """The table for a terminal of `width` characters, followed by the unfinished runs.

    Columns that do not fit side by side follow below, with the names of the recipes repeated. No
    text is cut off.
    """
    from rich.text import Text

    summaries = rank(summaries)
    whole = fold_columns(columns(summaries), best(summaries), summaries[0].scenario, width=width)
    whole.add_row(Text(legend(summaries), style="dim"))
    for cell in unfinished_cells(summaries):
        whole.add_row(Text(status_line(cell), style="yellow"))
    return whole


def extra_rich(extra: ExtraTable, *, width: int = 80) -> Table | None:
    """A small table for a terminal; None if the table has no columns."""
    from rich.text import Text

    if not extra.columns:
        return None
    whole = fold_columns(extra.columns, set(), extra.title.lower(), width=width)
    whole.add_row(Text(extra.caption, style="dim"))
    return whole


def fold_columns(
    shown: Sequence[TableColumn],
    bold: set[int],
    title: str,
    *,
    width: int,
    justify: Literal["left", "right"] = "right",
) -> Table:
    """Columns side by side as far as they fit; the first one is repeated before the others."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # All entries are Text objects: a recipe named "[red]" is a name, not a colour.
    names, *others = shown
    names_width = min(_width(names), width // 3)
    whole = Table.grid(expand=False)
    whole.add_row(Text(title, style="italic"))
    for block in _blocks(others, width - names_width - COLUMN_GAP):
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, COLUMN_GAP - 1, 0, 0))
        table.add_column(Text(names.heading), width=names_width, overflow="fold")
        for column in block:
            table.add_column(Text(column.heading), justify=justify, min_width=_width(column))
        for row, name in enumerate(names.entries):
            texts = [name, *(column.entries[row] for column in block)]
            table.add_row(*(Text(text, style="bold" if row in bold else "") for text in texts))
        whole.add_row(table)
        whole.add_row("")
    return whole


def _blocks(shown: Sequence[TableColumn], width: int) -> list[list[TableColumn]]:
    """Columns that fit side by side, in their order; a column wider than `width` is alone."""
    blocks: list[list[TableColumn]] = [[]]
    for column in shown:
        used = sum(_width(other) + COLUMN_GAP for other in blocks[-1])
        if blocks[-1] and used + _width(column) + COLUMN_GAP > width:
            blocks.append([])
        blocks[-1].append(column)
    return blocks


def _width(column: TableColumn) -> int:
    from rich.cells import cell_len  # some characters are two cells wide

    return max(cell_len(text) for text in [column.heading, *column.entries])


def write_report_file(path: Path, content: bytes) -> None:
    """Write a report, of which no reader sees half; an error is one line."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content, PUBLIC_MODE)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}.") from error
