"""Of many cases a few in `make test`, all of them in `make test-slow`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def mark_slow_except(cases: Iterable[str], *quick: str) -> list[Any]:
    """All cases; those that are not named here are slow ones."""
    cases = list(cases)
    assert set(quick) <= set(cases), "who is named is there"
    return [each if each in quick else pytest.param(each, marks=pytest.mark.slow) for each in cases]
