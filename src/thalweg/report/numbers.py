"""Numbers as text for tables: per cent with two decimals, ``87.31 ± 0.12``."""

from __future__ import annotations

from thalweg.core.metrics import Metric
from thalweg.report.summary import PairedDifference, Spread

NONE = "–"  # not measured
MINUS = "\N{MINUS SIGN}"  # as wide as the plus sign, without a line break after it


def format_metric(metric: Metric, spread: Spread | None) -> str:
    """Mean and standard deviation of a metric, in its unit.

    >>> from thalweg.core.metrics import METRICS
    >>> format_metric(METRICS["accuracy"], Spread(0.87314, 0.00123, 3))
    '87.31 ± 0.12'
    >>> format_metric(METRICS["megabytes"], Spread(12.34, None, 1))
    '12.3'
    >>> format_metric(METRICS["mean_staleness"], Spread(0.00123, None, 1))
    '0.00123'
    """
    if metric.unit == "share":
        return percent_spread(spread)
    return amount(spread, "{:.3g}" if metric.unit == "number" else "{:.1f}")


def percent(value: float | None) -> str:
    """A share of one, in per cent.

    >>> percent(0.87314)
    '87.31'
    """
    return NONE if value is None else f"{100 * value:.2f}"


def percent_spread(spread: Spread | None) -> str:
    """Mean and standard deviation in per cent; a single seed has no standard deviation.

    >>> percent_spread(Spread(0.87314, 0.00123, 3)), percent_spread(Spread(0.5, None, 1))
    ('87.31 ± 0.12', '50.00')
    """
    if spread is None:
        return NONE
    return percent(spread.mean) + ("" if spread.std is None else f" ± {percent(spread.std)}")


def amount(spread: Spread | None, form: str = "{:.1f}") -> str:
    """Megabytes, seconds or counts, with one decimal.

    >>> amount(Spread(12.34, 0.56, 3))
    '12.3 ± 0.6'
    """
    if spread is None:
        return NONE
    std = "" if spread.std is None else f" ± {form.format(spread.std)}"
    return form.format(spread.mean) + std


def points(value: float | None) -> str:
    """A difference in percentage points, always with its sign.

    >>> points(1.234), points(-0.5), points(-0.001)
    ('+1.23', '−0.50', '0.00')
    """
    if value is None:
        return NONE
    if round(value, 2) == 0:
        return "0.00"
    return f"{value:+.2f}".replace("-", MINUS)


def paired_points(difference: PairedDifference | None) -> str:
    """The difference to the first recipe, in percentage points.

    >>> paired_points(PairedDifference(-0.0031, 0.001, 0.03, 3))
    '−0.31 ± 0.10'
    """
    if difference is None:
        return NONE
    std = "" if difference.std is None else f" ± {percent(difference.std)}"
    return points(100 * difference.mean) + std


def paired_amount(metric: Metric, difference: PairedDifference | None) -> str:
    """The difference to the first recipe: percentage points of a share, else in the metric's unit.

    >>> from thalweg.core.metrics import METRICS
    >>> paired_amount(METRICS["mae"], PairedDifference(-0.0312, 0.001, 0.03, 3))
    '−0.0312 ± 0.001'
    """
    if metric.unit == "share" or difference is None:
        return paired_points(difference)
    std = "" if difference.std is None else f" ± {difference.std:.3g}"
    return f"{difference.mean:+.3g}".replace("-", MINUS) + std


def p_value(p: float | None) -> str:
    """A p-value to three decimals.

    >>> p_value(0.0421), p_value(0.00004), p_value(None)
    ('0.042', '< 0.001', '–')
    """
    if p is None:
        return NONE
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
