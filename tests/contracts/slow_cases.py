"""Select the cases of a test that run in `make test`; the others run in `make test-slow`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def mark_slow_except(cases: Iterable[str], *quick: str) -> list[Any]:
    """Return all cases; those that are not named in `quick` are marked as slow."""
    cases = list(cases)
    assert set(quick) <= set(cases), "a quick case is unknown"
    return [each if each in quick else pytest.param(each, marks=pytest.mark.slow) for each in cases]
