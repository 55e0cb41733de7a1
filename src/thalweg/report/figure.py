"""The figure of a comparison: accuracy over rounds (or over a swept value), one line per recipe.

Drawn with matplotlib's objects: pyplot and its list of open figures are never touched. Settings
hold while a figure is drawn and written, and are put back; do not draw in two threads at once.
"""

from __future__ import annotations

import html
import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thalweg.core.errors import require
from thalweg.report.cells import Cell
from thalweg.report.curves import Curve, Panel, describe, panels
from thalweg.report.files import write_atomically
from thalweg.report.labels import short_label, spread_apart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, distinguishable with any kind of colour vision; without black, which is
# the text's, and yellow, which is faint on white. Beyond six recipes the dashes change.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
DASHES = ("solid", "dashed", "dotted", "dashdot")
INK, FAINT, PAPER = "#1b1f24", "#d8dce1", "#ffffff"

WIDTH_IN = 8.0
LEFT_IN, TOP_IN, BOTTOM_IN, BETWEEN_IN = 0.5, 0.36, 0.5, 0.55
LONG_CURVE_POINTS = 10  # points of a curve, from which on its beginning may lie outside the frame
X_NAME_IN = 0.3  # for a name under the horizontal axis, between two panels
TEXT_PT = 9.5
LINE_PT = 1.35 * TEXT_PT  # distance of two labels


def figure_png(cells: Sequence[Cell], *, dots_per_inch: int = 160) -> bytes:
    """The figure as PNG, on white. The same cells give the same bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with _style():
        figure = _draw(_require_panels(cells))
        FigureCanvasAgg(figure)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=dots_per_inch, metadata={"Software": None})
    return file.getvalue()


def figure_svg(cells: Sequence[Cell]) -> str:
    """The figure as an SVG element to put into a page, without a background.

    Its colours are CSS variables with the printed colours as their defaults (``--ink``,
    ``--faint``, ``--series-1`` to ``--series-6``), so that a page can have a dark side.
    """
    return panels_svg(_require_panels(cells))


def panels_svg(drawn: Sequence[Panel]) -> str:
    """The same of panels that were made before."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    with _style():
        figure = _draw(drawn)
        FigureCanvasSVG(figure)
        file = io.StringIO()
        figure.savefig(
            file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    return _prepare_for_page(file.getvalue(), describe(drawn))


def has_figure(cells: Sequence[Cell]) -> bool:
    """Is there anything to draw: a finished run with an accuracy?"""
    return len(panels(cells)) > 0


def write_figure(path: str | os.PathLike[str], cells: Sequence[Cell]) -> None:
    """Write the figure as PNG, whole or not at all."""
    write_atomically(Path(path), figure_png(cells))


def _require_panels(cells: Sequence[Cell]) -> list[Panel]:
    drawn = panels(cells)
    require(
        len(drawn) > 0,
        "there is nothing to draw: no run has finished with an accuracy in its metrics.",
    )
    return drawn


@contextmanager
def _style() -> Iterator[None]:
    """Our settings on top of matplotlib's own defaults, whatever the user's matplotlibrc says."""
    import matplotlib

    defaults: dict[Any, Any] = {
        k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith("backend")
    }
    ours: dict[Any, Any] = {
        "font.family": ["DejaVu Sans"],  # comes with matplotlib, hence the same everywhere
        "font.size": TEXT_PT,
        "text.color": INK,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "axes.unicode_minus": False,
        "ytick.major.size": 0,
        "svg.fonttype": "none",
        "svg.hashsalt": "thalweg",
    }
    with matplotlib.rc_context({**defaults, **ours}):
        yield


def _draw(drawn: Sequence[Panel]) -> Figure:
    from matplotlib.figure import Figure

    labels = [short_label(curve.recipe) for panel in drawn for curve in panel.curves]
    most = max(len(panel.curves) for panel in drawn)
    right_in = 0.45 + 0.62 * TEXT_PT / 72 * max(map(len, labels))
    panel_in = max(2.3, most * LINE_PT / 72)
    between_in = BETWEEN_IN + (X_NAME_IN if any(panel.is_sweep for panel in drawn) else 0)
    height_in = TOP_IN + len(drawn) * panel_in + (len(drawn) - 1) * between_in + BOTTOM_IN
    figure = Figure(figsize=(WIDTH_IN, height_in), facecolor=PAPER)
    rounds = [x for panel in drawn if not panel.is_sweep for c in panel.curves for x in c.x]
    for number, panel in enumerate(drawn):
        bottom_in = height_in - TOP_IN - (number + 1) * panel_in - number * between_in
        axes = figure.add_axes(
            (
                LEFT_IN / WIDTH_IN,
                bottom_in / height_in,
                (WIDTH_IN - LEFT_IN - right_in) / WIDTH_IN,
                panel_in / height_in,
            )
        )
        _draw_panel(axes, panel, panel_in)
        if panel.is_sweep:
            axes.set_xlabel(panel.x_name, parse_math=False)
            continue
        if min(rounds) < max(rounds):
            axes.set_xlim(min(rounds), max(rounds))
        if number == len(drawn) - 1:
            axes.set_xlabel("round")
    return figure


def _draw_panel(axes: Axes, panel: Panel, height_in: float) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title(panel.heading, loc="left", fontsize=TEXT_PT + 0.5, fontweight="bold")
    axes.set_facecolor("none")
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    if panel.is_sweep:
        values = sorted({x for curve in panel.curves for x in curve.x})
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.margins(x=0.02)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    lowest, highest = _range(panel)
    margin = 0.04 * (highest - lowest) or 1.0
    axes.set_ylim(lowest - margin, highest + margin)
    for curve in reversed(panel.curves):  # the first recipe on top
        colour, dash = _colour(curve), DASHES[curve.index // len(COLOURS) % len(DASHES)]
        axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.16, lw=0)
        axes.plot(curve.x, curve.mean, color=colour, linewidth=1.8, linestyle=dash)
        marked = slice(None) if panel.is_sweep else slice(-1, None)
        axes.plot(
            curve.x[marked],
            curve.mean[marked],
            color=colour,
            linestyle="none",
            marker="o",
            ms=4,
            clip_on=False,
        )
    low, high = axes.get_ylim()
    gap = LINE_PT / (72 * height_in) * (high - low)
    places = spread_apart([curve.mean[-1] for curve in panel.curves], gap, low, high)
    for curve, place in zip(panel.curves, places, strict=True):
        axes.annotate(
            short_label(curve.recipe),
            xy=(curve.x[-1], curve.mean[-1]),
            xytext=(1.045, place),
            textcoords=("axes fraction", "data"),
            verticalalignment="center",
            parse_math=False,  # a dollar in a name is a dollar
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": _colour(curve),
                "linewidth": 1.2,
                "relpos": (0, 0.5),
                "shrinkA": 2,
                "shrinkB": 4,
            },
        )


def _range(panel: Panel) -> tuple[float, float]:
    """What the frame must show: all points; of many rounds, all but those of the first tenth.

    In the beginning every recipe climbs from chance; with that in the frame, the few points that
    separate them later could not be seen. Lines may therefore enter from below.
    """
    first = min(curve.x[0] for curve in panel.curves)
    last = max(curve.x[-1] for curve in panel.curves)
    is_long = (
        not panel.is_sweep
        and panel.unit != ""
        and max(len(curve.x) for curve in panel.curves) >= LONG_CURVE_POINTS
    )
    enough = first + 0.1 * (last - first) if is_long else first
    edges = [
        edge
        for curve in panel.curves
        for x, *band in zip(curve.x, curve.low, curve.high, strict=True)
        for edge in band
        if x >= enough
    ]
    return min(edges), max(edges)


def _colour(curve: Curve) -> str:
    return COLOURS[curve.index % len(COLOURS)]


def _prepare_for_page(svg: str, description: str) -> str:
    """Drop what only a file needs, name the colours, say in words what is shown."""
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # would clash in a page of several figures
    names = {INK: "ink", FAINT: "faint"}
    names |= {colour: f"series-{number}" for number, colour in enumerate(COLOURS, start=1)}

    def name_colours(tag: re.Match[str]) -> str:  # tags only: texts may hold anything
        return re.sub(
            r"(fill|stroke): (#[0-9a-f]{6})",
            lambda m: f"{m[1]}: var(--{names[m[2]]}, {m[2]})" if m[2] in names else m[0],
            tag[0],
        )

    svg = re.sub(r"<[^>]*>", name_colours, svg)
    svg = svg.replace(f"fill: {PAPER}", "fill: none", 1)  # the sheet itself
    return svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(description)}"', 1)
