"""Compare the recipe `auto` with the best specialist in each world of the study auto-table.

The input are stored cells (`report.measured`), so that the numbers in ``docs/results/auto.md`` can
be computed again without runs. Accuracies and differences are in percentage points.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import NamedTuple

from thalweg.report.measured import MeasuredCell
from thalweg.report.numbers import NONE, p_value, points
from thalweg.report.summary import PairedDifference, correct_differences, paired_difference
from thalweg.report.table import SIGNIFICANT, TableColumn
from thalweg.scenarios.studies.auto import (
    ABLATIONS,
    ACCURACY,
    AUTO,
    BASELINES,
    CORE_SECONDS,
    FEDAVG,
    MEGABYTES,
    SPECIALISTS,
    WHOLE,
    WORLDS,
    Benchmark,
    make_columns,
    name_ablation,
)

MAX_LOSS = 0.5  # points below the best specialist
MIN_LEAD = 2.0  # points above all others in the mixed world
MAX_CORE_RATIO = 1.5  # of FedAvg's core-seconds, where one model suffices
MAX_TRAFFIC_RATIO = 2.0  # of FedAvg's bytes, where one model suffices
MIXED = "mixed-digits"
Values = dict[int, float]  # by seed


class Rival(NamedTuple):
    """Another row, and how far `auto` is above it on the shared seeds."""

    row: str
    mean: float
    difference: PairedDifference


@dataclass(frozen=True)
class WorldResult:
    """`auto` in one world, by one metric."""

    world: Benchmark
    shown: str
    mean: float
    specialist: Rival | None
    """The specialist with the highest mean; None: none was measured."""
    other: Rival | None
    """The row with the highest mean among all specialists and baselines."""
    core_ratio: float | None
    """Median core-seconds relative to FedAvg's."""
    traffic_ratio: float | None
    """Median bytes relative to FedAvg's."""

    @property
    def label(self) -> str:
        return self.world.label + ("" if self.shown == ACCURACY else f", {self.shown}")

    @property
    def is_within(self) -> bool:
        """Whether the mean is at most `MAX_LOSS` points below the best specialist."""
        return self.specialist is not None and self.specialist.difference.mean >= -MAX_LOSS

    @property
    def is_above(self) -> bool:
        """Whether the mean is significantly above the best specialist."""
        return self.specialist is not None and is_significantly_above(self.specialist.difference)

    @property
    def is_cheap(self) -> bool | None:
        """Whether the cost is within the limits; None: unknown, or one model does not suffice."""
        if self.world.has_concept_drift or self.core_ratio is None or self.traffic_ratio is None:
            return None
        return self.core_ratio <= MAX_CORE_RATIO and self.traffic_ratio <= MAX_TRAFFIC_RATIO


def is_significantly_above(difference: PairedDifference) -> bool:
    """Return whether a difference is positive with p < 0.05.

    >>> is_significantly_above(PairedDifference(1.0, 0.5, 0.04, 5))
    True
    >>> is_significantly_above(PairedDifference(-1.0, 0.5, 0.04, 5))
    False
    """
    p = difference.p_value
    return difference.mean > 0 and p is not None and p < SIGNIFICANT


class Measured:
    """The values of the stored cells by row, world and what is shown."""

    def __init__(self, cells: Iterable[MeasuredCell]) -> None:
        self._cells = {(cell.row, cell.column): cell for cell in cells}

    def get(self, row: str, world: Benchmark, shown: str) -> Values:
        """Return the values of a cell by seed; empty: it was not measured."""
        column = make_columns(world).get(shown)
        cell = None if column is None else self._cells.get((row, column.label))
        return {} if cell is None else dict(zip(cell.seeds, cell.values, strict=True))


def compare_auto(cells: Iterable[MeasuredCell]) -> list[WorldResult]:
    """Return one result for each world and accuracy in which `auto` was measured."""
    measured = Measured(cells)
    found = []
    for world in WORLDS:
        for shown in (ACCURACY, WHOLE):
            if values := measured.get(AUTO, world, shown):
                found.append(
                    WorldResult(
                        world,
                        shown,
                        fmean(values.values()),
                        find_best(measured, world, shown, SPECIALISTS),
                        find_best(measured, world, shown, (*SPECIALISTS, *BASELINES)),
                        find_ratio(measured, world, CORE_SECONDS),
                        find_ratio(measured, world, MEGABYTES),
                    )
                )
    return found


def find_best(
    measured: Measured, world: Benchmark, shown: str, rows: Sequence[str]
) -> Rival | None:
    """Return the row with the highest mean over the seeds that it shares with `auto`."""
    mine, rivals = measured.get(AUTO, world, shown), []
    for row in rows:
        values = measured.get(row, world, shown)
        difference = paired_difference(mine, values)
        if difference is not None:
            mean = fmean(values[seed] for seed in mine if seed in values)
            rivals.append(Rival(row, mean, difference))
    return max(rivals, key=lambda rival: rival.mean, default=None)


def find_ratio(measured: Measured, world: Benchmark, shown: str) -> float | None:
    """Return the median cost of `auto` divided by that of FedAvg; None: not measured.

    Medians, because the first run of a process takes longer than the others.
    """
    mine, other = (measured.get(row, world, shown).values() for row in (AUTO, FEDAVG))
    return median(mine) / median(other) if mine and other and median(other) > 0 else None


def tabulate_comparison(results: Sequence[WorldResult]) -> list[TableColumn]:
    """Return the comparison as columns of text, with one line per world and accuracy."""
    tested = [None if r.specialist is None else r.specialist.difference for r in results]
    headline = [
        difference if result.shown == ACCURACY else None
        for result, difference in zip(results, tested, strict=True)
    ]
    corrected = correct_differences(headline)
    return [
        TableColumn("world", [result.label for result in results]),
        TableColumn("auto", [f"{result.mean:.2f}" for result in results]),
        TableColumn("best specialist", [_format_rival(result.specialist) for result in results]),
        TableColumn("difference", [_format_difference(difference) for difference in tested]),
        TableColumn("p", [p_value(difference and difference.p_value) for difference in tested]),
        TableColumn("p (Holm)", [p_value(each and each.p_value) for each in corrected]),
        TableColumn(f"within {MAX_LOSS}", [_yes_or_no(result.is_within) for result in results]),
        TableColumn("above", [_yes_or_no(result.is_above) for result in results]),
        TableColumn("best of all others", [_format_rival(result.other) for result in results]),
        TableColumn(
            "difference to it",
            [_format_difference(result.other and result.other.difference) for result in results],
        ),
        TableColumn("core-s / FedAvg", [_format_ratio(result.core_ratio) for result in results]),
        TableColumn("MB / FedAvg", [_format_ratio(result.traffic_ratio) for result in results]),
    ]


def describe_targets(results: Sequence[WorldResult]) -> list[str]:
    """Return one sentence for each target: whether it is met, and where it is missed."""
    known = [result for result in results if result.specialist is not None]
    headline = [result for result in known if result.shown == ACCURACY]
    worlds = len(headline)
    above = sum(result.is_above for result in headline)
    missed = [result.label for result in known if not result.is_within]
    sentences = [
        f"Within {MAX_LOSS} points of the best specialist: {len(known) - len(missed)} of "
        f"{len(known)} comparisons.{_list_missed(missed)}",
        f"Significantly above the best specialist: {above} of {worlds} worlds (target: at least "
        f"{(len(WORLDS) + 1) // 2} of {len(WORLDS)}).",
        *(_describe_lead(result) for result in headline if result.world.label == MIXED),
    ]
    costs = [result for result in results if result.shown == ACCURACY]
    cheap = [result for result in costs if result.is_cheap is not None]
    expensive = [result.label for result in cheap if not result.is_cheap]
    sentences.append(
        f"At most {MAX_CORE_RATIO} times FedAvg's core-seconds and {MAX_TRAFFIC_RATIO:g} times its "
        f"traffic, where one model suffices: {len(cheap) - len(expensive)} of {len(cheap)} worlds."
        f"{_list_missed(expensive)}"
    )
    return sentences


def _describe_lead(result: WorldResult) -> str:
    if result.other is None:
        return f"{result.label}: no other row was measured."
    lead = result.other.difference
    is_met = is_significantly_above(lead) and lead.mean >= MIN_LEAD
    return (
        f"{result.label}: {points(lead.mean)} points to the best other row, {result.other.row} "
        f"(p {p_value(lead.p_value)}); target: +{MIN_LEAD:g}, {'met' if is_met else 'missed'}."
    )


def tabulate_parts(cells: Iterable[MeasuredCell]) -> list[TableColumn]:
    """Return how far `auto` is above itself without each of its parts, with one line per world.

    A star marks differences with p < 0.05, which are not corrected for their number.
    """
    measured = Measured(cells)
    worlds = [world for world in WORLDS if measured.get(AUTO, world, ACCURACY)]
    columns = [TableColumn("world", [world.label for world in worlds])]
    for part in ABLATIONS:
        differences = [
            paired_difference(
                measured.get(AUTO, world, ACCURACY),
                measured.get(name_ablation(part), world, ACCURACY),
            )
            for world in worlds
        ]
        columns.append(TableColumn(part, [_format_marked(each) for each in differences]))
    return columns


def _list_missed(labels: Sequence[str]) -> str:
    return f" Missed: {'; '.join(labels)}." if labels else ""


def _format_rival(rival: Rival | None) -> str:
    return NONE if rival is None else f"{rival.row} {rival.mean:.2f}"


def _format_difference(difference: PairedDifference | None) -> str:
    if difference is None:
        return NONE
    spread = "" if difference.std is None else f" ± {difference.std:.2f}"
    return points(difference.mean) + spread


def _format_marked(difference: PairedDifference | None) -> str:
    if difference is None:
        return NONE
    is_significant = difference.p_value is not None and difference.p_value < SIGNIFICANT
    return points(difference.mean) + ("*" if is_significant else "")


def _format_ratio(ratio: float | None) -> str:
    return NONE if ratio is None else f"{ratio:.2f}"


def _yes_or_no(is_true: bool) -> str:
    return "yes" if is_true else "no"
