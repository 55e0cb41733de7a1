"""What a single run says of its alarms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def alarm_line(found: Mapping[str, Any]) -> str:
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
