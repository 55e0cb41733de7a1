"""A figure of matrices with the same columns: the area of a circle shows an entry."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from thalweg.core.errors import require
from thalweg.core.types import Floats
from thalweg.report.figure import COLOURS, FAINT, PAPER, TEXT_PT, WIDTH_IN, figure_style
from thalweg.report.render import write_report_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_ROWS = 40  # of a panel; further rows are left out
ROW_IN = 0.14  # height of a row
LEFT_IN, RIGHT_IN, TOP_IN, BOTTOM_IN, BETWEEN_IN = 0.55, 0.1, 0.55, 0.55, 0.55
MAX_AREA = 42.0  # of a circle, in square points


class CirclePanel(NamedTuple):
    """One matrix of a figure. Its largest entry has the largest circle."""

    title: str
    row_name: str
    values: Floats  # (rows, columns), not negative


class ColumnGroup(NamedTuple):
    """Adjacent columns with a common label."""

    label: str
    size: int


def write_circles(
    path: Path, panels: Sequence[CirclePanel], groups: Sequence[ColumnGroup], x_name: str
) -> None:
    """Write panels, one below the other, as PNG or SVG; the name of the file determines which."""
    kind = path.suffix.lower().removeprefix(".")
    require(
        kind in ("png", "svg"),
        f"expected a file name that ends in .png or .svg, got {path.name}.",
    )
    write_report_file(path, draw_circles(panels, groups, x_name, kind))


def draw_circles(
    panels: Sequence[CirclePanel], groups: Sequence[ColumnGroup], x_name: str, kind: str = "png"
) -> bytes:
    """Return the figure as a ``png`` or ``svg`` file. The same values give the same bytes."""
    from matplotlib.figure import Figure

    heights = [ROW_IN * (min(len(panel.values), MAX_ROWS) + 1) for panel in panels]
    height_in = TOP_IN + sum(heights) + BETWEEN_IN * (len(panels) - 1) + BOTTOM_IN
    with figure_style():
        figure = Figure(figsize=(WIDTH_IN, height_in), facecolor=PAPER)
        top_in = height_in - TOP_IN
        for number, (panel, panel_in) in enumerate(zip(panels, heights, strict=True)):
            axes = figure.add_axes(
                (
                    LEFT_IN / WIDTH_IN,
                    (top_in - panel_in) / height_in,
                    (WIDTH_IN - LEFT_IN - RIGHT_IN) / WIDTH_IN,
                    panel_in / height_in,
                )
            )
            _draw_panel(axes, panel, COLOURS[number % len(COLOURS)])
            _mark_groups(axes, groups)
            if number < len(panels) - 1:
                axes.tick_params(labelbottom=False)
            else:
                axes.set_xlabel(x_name)
            top_in -= panel_in + BETWEEN_IN
        file = io.BytesIO()
        metadata = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
        figure.savefig(file, format=kind, dpi=100, metadata=metadata)
    return file.getvalue()


def _draw_panel(axes: Axes, panel: CirclePanel, colour: str) -> None:
    """Draw one circle per positive entry; rows from top to bottom."""
    values = panel.values[:MAX_ROWS]
    rows, columns = np.nonzero(values > 0)
    areas = MAX_AREA * values[rows, columns] / max(float(values.max()), 1e-30)
    axes.scatter(columns, rows, s=areas, color=colour, linewidths=0)
    axes.set_xlim(-0.7, values.shape[1] - 0.3)
    axes.set_ylim(len(values) - 0.2, -0.8)
    axes.set_yticks(range(0, len(values), 1 if len(values) <= 10 else 5))
    axes.set_ylabel(panel.row_name)
    axes.set_title(panel.title, loc="left", fontsize=TEXT_PT + 0.5, fontweight="bold", pad=18)


def _mark_groups(axes: Axes, groups: Sequence[ColumnGroup]) -> None:
    """Draw a line at the left of each group, and its label above it."""
    first = 0
    for group in groups:
        axes.axvline(first - 0.5, color=FAINT, linewidth=0.8, zorder=0.5)
        axes.annotate(
            group.label,
            xy=(first + (group.size - 1) / 2, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            horizontalalignment="center",
            fontsize=TEXT_PT - 1.5,
        )
        first += group.size
