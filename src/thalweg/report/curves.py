"""Curves for figures: accuracy over rounds or over a swept value, by recipe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from thalweg.core.metrics import METRICS, Metric, choose_headline, is_redundant, metrics_in
from thalweg.report.cells import Cell, group_by_recipe, metric_series
from thalweg.report.summary import spread

PREQUENTIAL = [METRICS["prequential_accuracy"], METRICS["prequential_mae"]]
NUM_WINDOWS = 12  # independent points of a smoothed curve, about


@dataclass(frozen=True)
class Curve:
    """One metric of one recipe over the rounds, or over the values of a sweep.

    Shares in per cent.
    """

    recipe: str
    index: int  # of the recipe in the comparison; determines the colour
    x: Sequence[float]  # the rounds or values, ascending
    mean: list[float]
    low: list[float]  # edges of the band; equal to the mean with a single seed
    high: list[float]


@dataclass(frozen=True)
class Panel:
    """All curves of one metric."""

    title: str
    curves: list[Curve]
    x_name: str = "round"  # the horizontal axis
    unit: str = "%"  # empty: a count
    marks: Sequence[int] = ()  # rounds of drifts

    @property
    def heading(self) -> str:
        return f"{self.title}, {self.unit}" if self.unit else self.title

    @property
    def is_sweep(self) -> bool:
        """Whether every point is a different run, rather than a round of one run."""
        return self.x_name != "round"


def panels(cells: Sequence[Cell]) -> list[Panel]:
    """Test accuracy and the accuracy in the worst latent state, as far as runs have them.

    In a regression, the mean absolute error. The prequential metric comes first if it is the
    headline; otherwise it is drawn if a recipe, such as a baseline, has no curve of test results.
    It is smoothed if there are many rounds. Only finished runs are drawn. A metric that repeats
    another one in every run, such as the worst of one state, is left out.
    """
    own = cells[0].own_metrics.values() if cells else ()
    metrics = [metric for metric in metrics_in("figure") if metric not in PREQUENTIAL]
    metrics += [metric for metric in own if metric.name == cells[0].headline]
    found = [_make_panel(metric, cells) for metric in metrics if not _is_redundant(metric, cells)]
    tested = [panel for panel in found if panel.curves]
    arriving = _make_prequential_panels(cells)
    # Of a baseline the test set is only used at the end, which is a point and no curve.
    longest = max((len(curve.x) for panel in tested for curve in panel.curves), default=0)
    names = {
        curve.recipe
        for panel in tested
        for curve in panel.curves
        if len(curve.x) > 1 or longest == 1
    }
    if _is_ranked_by_arrivals(cells):
        return [*arriving, *tested]
    if any(curve.recipe not in names for panel in arriving for curve in panel.curves):
        return [*tested, *arriving]
    return tested


def _make_prequential_panels(cells: Sequence[Cell]) -> list[Panel]:
    """The prequential metric of the task; no panel if no run has it."""
    for panel in [_make_panel(metric, cells) for metric in PREQUENTIAL]:
        window = max((len(curve.x) for curve in panel.curves), default=0) // NUM_WINDOWS
        if window > 1:
            smoothed = [smooth(curve, window) for curve in panel.curves]
            title = f"{panel.title}, mean of {window} rounds"
            return [replace(panel, title=title, curves=smoothed)]
        if panel.curves:
            return [panel]
    return []


def _is_ranked_by_arrivals(cells: Sequence[Cell]) -> bool:
    headline = choose_headline(
        {name for cell in cells for row in cell.rows for name in row if row[name] is not None},
        is_time_ordered=any(cell.is_time_ordered for cell in cells),
        requested=cells[0].headline if cells else None,
    )
    return headline.startswith("prequential")


def find_drift_rounds(cells: Sequence[Cell]) -> list[int]:
    """Return the rounds in which clients drifted in every finished run with known drifts.

    Of consecutive rounds only the first is listed.

    >>> rows = [{"round": rnd, "drifted": int(rnd in (3, 4, 7))} for rnd in range(1, 9)]
    >>> find_drift_rounds([Cell("a", "s", 0, "done", "", rows, "thalweg run", 1.0)])
    [3, 7]
    """
    known = [
        {row["round"] for row in cell.rows if row.get("drifted")}
        for cell in cells
        if cell.is_done and any("drifted" in row for row in cell.rows)
    ]
    rounds = set.intersection(*known) if known else set()
    return sorted(rnd for rnd in rounds if rnd - 1 not in rounds)


def _make_panel(metric: Metric, cells: Sequence[Cell]) -> Panel:
    is_share = metric.unit == "share"
    drawn = curves(cells, metric.name, is_share=is_share)
    marks = find_drift_rounds(cells)
    return Panel(panel_title(metric), drawn, unit="%" if is_share else "", marks=marks)


def panel_title(metric: Metric) -> str:
    return metric.title or metric.description


def _is_redundant(metric: Metric, cells: Sequence[Cell]) -> bool:
    return is_redundant(metric, [row for cell in cells for row in cell.rows])


def smooth(curve: Curve, window: int) -> Curve:
    """Replace every point of a curve by the mean of the last `window` points, fewer at the start.

    Few samples arrive in one round, and curves of single rounds would hide one another.

    >>> low, high = [0, 20, 40], [20, 20, 80]
    >>> curve = Curve("sfedpo", 0, x=[1, 2, 3], mean=[10, 20, 60], low=low, high=high)
    >>> smooth(curve, 2).mean, smooth(curve, 2).low
    ([10.0, 15.0, 40.0], [0.0, 10.0, 30.0])
    """

    def means(values: Sequence[float]) -> list[float]:
        return [fmean(values[max(0, end - window) : end]) for end in range(1, len(values) + 1)]

    return replace(curve, mean=means(curve.mean), low=means(curve.low), high=means(curve.high))


def metric_panels(cells: Sequence[Cell], names: Sequence[str]) -> list[Panel]:
    """One panel for each of some metrics, as far as runs have them."""
    drawn = [_make_panel(METRICS[name], cells) for name in names]
    return [panel for panel in drawn if panel.curves]


def bank_panels(cells: Sequence[Cell]) -> list[Panel]:
    """Models, clusters and drifts found over the rounds, as far as runs have them."""
    drawn = [
        Panel(
            panel_title(metric),
            curves(_fill_model_counts(cells, metric.name), metric.name, is_share=False),
            unit="",
        )
        for metric in metrics_in("bank figure")
    ]
    return [panel for panel in drawn if panel.curves]


def _fill_model_counts(cells: Sequence[Cell], metric: str) -> list[Cell]:
    """Add the number of models to the rounds of a bank in which there was one model."""
    if metric != "models":
        return list(cells)
    return [
        replace(cell, rows=[{**row, metric: row.get(metric, 1)} for row in cell.rows])
        if any(metric in row for row in cell.rows)
        else cell
        for cell in cells
    ]


def curves(cells: Sequence[Cell], metric: str, *, is_share: bool = True) -> list[Curve]:
    """Mean over the finished seeds, with a band of one sample standard deviation to either side.

    The band ends at 0, unless a mean is negative, and at 100 per cent for a share. Rounds that some
    seed did not evaluate are left out, so that each point is a mean over the same seeds.

    >>> def cell(seed, accuracy):
    ...     rows = [{"round": 1}, {"round": 2, "accuracy": accuracy}]
    ...     return Cell("sfedpo", "digits-full", seed, "done", "", rows, "thalweg run", 1.0)
    >>> curves([cell(0, 0.25), cell(1, 0.75)], "accuracy")
    [Curve(recipe='sfedpo', index=0, x=[2], mean=[50.0], low=[14.6...], high=[85.3...])]
    """
    drawn, scale, most = [], 100 if is_share else 1, 1.0 if is_share else math.inf
    for index, (recipe, group) in enumerate(group_by_recipe(cells).items()):
        seeds = [
            dict(found) for cell in group if cell.is_done and (found := metric_series(cell, metric))
        ]
        rounds = sorted(set(seeds[0]).intersection(*seeds[1:])) if seeds else []
        spreads = [(rnd, spread(seed[rnd] for seed in seeds)) for rnd in rounds]
        points = [(rnd, s.mean, s.std or 0.0) for rnd, s in spreads if s is not None]
        if points:
            least = 0.0 if min(mean for _, mean, _ in points) >= 0 else -math.inf
            drawn.append(
                Curve(
                    recipe,
                    index,
                    x=[rnd for rnd, _, _ in points],
                    mean=[scale * mean for _, mean, _ in points],
                    low=[scale * max(mean - std, least) for _, mean, std in points],
                    high=[scale * min(mean + std, most) for _, mean, std in points],
                )
            )
    return drawn


def describe(panels: Sequence[Panel]) -> str:
    """The figure in words, for screen readers.

    >>> curve = Curve("sfedpo", 0, x=[5, 10], mean=[40.0, 62.5], low=[0, 0], high=[0, 0])
    >>> describe([Panel("Test accuracy", [curve])])
    'Line chart over rounds 5 to 10. Test accuracy at the end: sfedpo 62.50 %.'
    """
    rounds = [
        rnd for panel in panels if not panel.is_sweep for curve in panel.curves for rnd in curve.x
    ]
    texts = [f"Line chart over rounds {min(rounds)} to {max(rounds)}."] if rounds else []
    for panel in panels:
        if panel.is_sweep:
            lines = "; ".join(_points(panel.x_name, curve) for curve in panel.curves)
            texts.append(f"Line chart. {panel.title}: {lines}.")
            continue
        number = "{:.2f} %" if panel.unit else "{:g}"
        ends = ", ".join(
            f"{curve.recipe} {number.format(curve.mean[-1])}" for curve in panel.curves
        )
        texts.append(f"{panel.title} at the end: {ends}.")
    return " ".join(texts)


def _points(x_name: str, curve: Curve) -> str:
    pairs = zip(curve.x, curve.mean, strict=True)
    return f"{curve.recipe} " + ", ".join(f"{mean:.2f} % at {x_name}={x:g}" for x, mean in pairs)
