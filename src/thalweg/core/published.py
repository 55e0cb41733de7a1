"""A number of a paper."""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    """An accuracy as a paper prints it, in per cent."""

    mean: float
    spread: float | None = None  # over its trials; None: the paper gives none
    cell: str | None = ""
    """Name of the cell, if several entries of a study show the same one; empty: row and column.
    None: not printed, but computed from printed numbers.
    """
