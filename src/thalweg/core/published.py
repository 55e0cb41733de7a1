"""A number of a paper."""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    """An accuracy as a paper prints it, in per cent."""

    mean: float
    spread: float | None = None  # over its trials; None: the paper gives none
