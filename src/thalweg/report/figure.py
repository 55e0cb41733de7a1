"""The figure of a comparison: accuracy over rounds (or over a swept value), one line per recipe.

It is drawn with matplotlib's objects, without pyplot and its list of open figures. Matplotlib's
global settings are changed while a figure is drawn and restored afterwards; do not draw in two
threads at once.
"""

from __future__ import annotations

import colorsys
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
from thalweg.report.render import write_report_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The colours of Okabe and Ito, which can be distinguished with any kind of colour vision; without
# black (the text) and yellow (faint on white); then six darker ones. After every six recipes the
# line style changes as well. No two recipes have the same colour.
COLOURS = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"),
    *("#7a4fa0", "#8c6d1f", "#a3113f", "#4d6b2f", "#6b6f76", "#00707a"),
)
SAME_STYLE = 6  # recipes with the same line style
GOLDEN = 0.618034  # of a turn; far from earlier hues
DASHES = ("solid", "dashed", "dotted", "dashdot")
INK, FAINT, PAPER = "#1b1f24", "#d8dce1", "#ffffff"

WIDTH_IN = 8.0
LEFT_IN, TOP_IN, BOTTOM_IN, BETWEEN_IN = 0.5, 0.36, 0.5, 0.55
LONG_CURVE_POINTS = 10  # with so many points, the beginning of a curve may lie outside the frame
X_NAME_IN = 0.3  # for the name of the horizontal axis, between two panels
TEXT_PT = 9.5
LINE_PT = 1.35 * TEXT_PT  # distance between two labels
MAX_LABEL_LENGTH = 30  # characters
MAX_TITLES = 60  # points of a curve with a title


def draw_figure(cells: Sequence[Cell]) -> Figure:
    """The figure as an object of matplotlib."""
    with figure_style():
        return _draw(_require_panels(cells))


def figure_png(cells: Sequence[Cell], *, dots_per_inch: int = 160) -> bytes:
    """The figure as PNG on a white background. The same cells give the same bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with figure_style():
        figure = _draw(_require_panels(cells))
        FigureCanvasAgg(figure)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=dots_per_inch, metadata={"Software": None})
    return file.getvalue()


def figure_svg(cells: Sequence[Cell]) -> str:
    """The figure as an SVG element for a page, without a background.

    Its colours are CSS variables with the printed colours as defaults (``--ink``, ``--faint``,
    ``--series-1`` to ``--series-12``), so that a page can have a dark mode.
    """
    return panels_svg(_require_panels(cells))


def panels_svg(drawn: Sequence[Panel]) -> str:
    """Panels as an SVG element; see `figure_svg`."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    with figure_style():
        figure = _draw(drawn)
        FigureCanvasSVG(figure)
        file = io.StringIO()
        figure.savefig(
            file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
        points = "\n".join(_point_titles(figure, drawn))
    svg = _prepare_for_page(file.getvalue(), describe(drawn))
    return svg.replace("</svg>", f"<g>\n{points}\n</g>\n</svg>")


def _point_titles(figure: Figure, drawn: Sequence[Panel]) -> Iterator[str]:
    """Yield an invisible circle for each point, with its value as a title.

    Browsers show a title beside the pointer. Of long curves, about `MAX_TITLES` points have one.
    """
    width, height = (72 * inches for inches in figure.get_size_inches())
    for axes, panel in zip(figure.axes, drawn, strict=True):
        to_figure = axes.transData - figure.transFigure
        low, high = axes.get_ylim()
        for curve in panel.curves:
            step = -(-len(curve.x) // MAX_TITLES)
            for number in range(len(curve.x) - 1, -1, -step):
                if not low <= curve.mean[number] <= high:
                    continue
                x, y = to_figure.transform((curve.x[number], curve.mean[number]))
                title = html.escape(describe_point(panel, curve, number))
                yield (
                    f'<circle class="point" cx="{x * width:.1f}" cy="{(1 - y) * height:.1f}" '
                    f'r="5"><title>{title}</title></circle>'
                )


def describe_point(panel: Panel, curve: Curve, number: int) -> str:
    """A point of a curve in words; with several seeds, also the band.

    >>> curve = Curve("sfedpo", 0, x=[5, 10], mean=[40.0, 62.5], low=[40, 60], high=[40, 65])
    >>> describe_point(Panel("Test accuracy", [curve]), curve, 1)
    'sfedpo, round 10: 62.50 % (60.00 to 65.00)'
    """
    number_format = "{:.2f}" if panel.unit else "{:.4g}"
    mean, low, high = (
        number_format.format(values[number]) for values in (curve.mean, curve.low, curve.high)
    )
    unit = f" {panel.unit}" if panel.unit else ""
    band = f" ({low} to {high})" if low != high else ""
    return f"{curve.recipe}, {panel.x_name} {curve.x[number]:g}: {mean}{unit}{band}"


def has_figure(cells: Sequence[Cell]) -> bool:
    """Whether there is a finished run with an accuracy to draw."""
    return len(panels(cells)) > 0


def write_figure(path: str | os.PathLike[str], cells: Sequence[Cell]) -> None:
    """Write the figure as PNG, atomically."""
    write_report_file(Path(path), figure_png(cells))


def _require_panels(cells: Sequence[Cell]) -> list[Panel]:
    drawn = panels(cells)
    require(
        len(drawn) > 0,
        "there is nothing to draw: no finished run has an accuracy in its metrics.",
    )
    return drawn


@contextmanager
def figure_style() -> Iterator[None]:
    """Apply our settings to matplotlib's defaults, independent of the user's matplotlibrc."""
    import matplotlib

    defaults: dict[Any, Any] = {
        k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith("backend")
    }
    ours: dict[Any, Any] = {
        "font.family": ["DejaVu Sans"],  # comes with matplotlib, so it is the same everywhere
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
        colour, dash = _colour(curve), DASHES[curve.index // SAME_STYLE % len(DASHES)]
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
    for rnd in panel.marks:
        axes.axvline(rnd, color=INK, linewidth=0.8, linestyle="dotted", alpha=0.6, zorder=0.5)
    low, high = axes.get_ylim()
    gap = LINE_PT / (72 * height_in) * (high - low)
    positions = spread_apart([curve.mean[-1] for curve in panel.curves], gap, low, high)
    for curve, position in zip(panel.curves, positions, strict=True):
        axes.annotate(
            short_label(curve.recipe),
            xy=(curve.x[-1], curve.mean[-1]),
            xytext=(1.045, position),
            textcoords=("axes fraction", "data"),
            verticalalignment="center",
            parse_math=False,  # a dollar sign in a name is not markup
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
    """The vertical range: all points; with many rounds, all points after the first tenth.

    At the beginning every recipe improves quickly from chance level. With that in the frame, the
    small differences between recipes later on would not be visible. Lines may therefore enter from
    below.
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
    return choose_colour(curve.index)


def choose_colour(index: int) -> str:
    """The colour of a recipe by its number in the comparison; beyond the list, a new hue.

    >>> choose_colour(0), choose_colour(12)
    ('#0072b2', '#34a86d')
    """
    if index < len(COLOURS):
        return COLOURS[index]
    red, green, blue = colorsys.hls_to_rgb(index * GOLDEN % 1, 0.43, 0.53)
    return "#" + "".join(f"{round(255 * part):02x}" for part in (red, green, blue))


def _prepare_for_page(svg: str, description: str) -> str:
    """Remove what only a file needs, replace colours by variables, and add a description."""
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # would clash in a page with several figures
    names = {INK: "ink", FAINT: "faint"}
    names |= {colour: f"series-{number}" for number, colour in enumerate(COLOURS, start=1)}

    def name_colours(tag: re.Match[str]) -> str:  # only in tags: texts may contain anything
        return re.sub(
            r"(fill|stroke): (#[0-9a-f]{6})",
            lambda m: f"{m[1]}: var(--{names[m[2]]}, {m[2]})" if m[2] in names else m[0],
            tag[0],
        )

    svg = re.sub(r"<[^>]*>", name_colours, svg)
    svg = svg.replace(f"fill: {PAPER}", "fill: none", 1)  # the background
    return svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(description)}"', 1)


def spread_apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    r"""Move labels as little as possible until no two are closer than `gap`.

    Minimises :math:`\sum_i (y_i - w_i)^2` with :math:`y_{i+1} \ge y_i + g` in the order of the
    :math:`w_i`. With :math:`z_i = y_i - i g` that is isotonic regression, and the limits clip it.
    If the labels do not fit between the limits, they are spaced evenly.

    >>> spread_apart([5.0, 5.0, 9.0], gap=2.0, low=0.0, high=10.0)
    [4.0, 6.0, 9.0]
    """
    from numpy import arange, argsort, asarray, clip, empty_like
    from scipy.optimize import isotonic_regression

    w = asarray(wanted, dtype=float)
    if len(w) > 1:
        gap = min(gap, (high - low) / (len(w) - 1))
    order = argsort(w, kind="stable")
    steps = gap * arange(len(w))
    z = clip(isotonic_regression(w[order] - steps).x, low, high - steps[-1])
    y = empty_like(w)
    y[order] = z + steps
    return [float(value) for value in y]


def short_label(name: str) -> str:
    """Shorten a name to fit into the margin; both ends are kept, since variants differ there.

    >>> short_label("sfedpo,memory=uniform-ratio,weights=equal")
    'sfedpo,memory=…,weights=equal'
    """
    if len(name) <= MAX_LABEL_LENGTH:
        return name
    half = (MAX_LABEL_LENGTH - 1) // 2
    return f"{name[:half]}…{name[-half:]}"
