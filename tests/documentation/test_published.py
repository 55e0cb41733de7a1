"""The paper's numbers on recipe pages are those of the studies."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from documentation.pages import ROOT
from thalweg.scenarios.studies import STUDIES

# A paragraph, or the table after it.
PUBLISHED = re.compile(r"\*\*Published\*\*(.+?)(?:\n\n(?!\|)|\Z)", re.DOTALL)
# A number, with its standard deviation or gain: 85.07 ± 0.21, 85.07 (+1.35).
NUMBER = re.compile(r"(?<![\d.])(\d+\.\d+)(?:\s+±\s+(\d+\.\d+)|\s+\(\+(\d+\.\d+)\))?(?!\d)")
SETTING = re.compile(r"\b(?:Dir|Dirichlet|imbalance) 0\.\d")
PAGES = [
    page
    for page in sorted((ROOT / "docs/recipes").glob("*.md"))
    if NUMBER.search(" ".join(PUBLISHED.findall(page.read_text())))
]
Printed = set[tuple[float, float | None, float | None]]  # mean, standard deviation, gain


def find_numbers(text: str) -> list[tuple[float, float | None, float | None]]:
    """Return the numbers after **Published**, without settings; fractions in per cent."""
    words = SETTING.sub("", " ".join(PUBLISHED.findall(text)))
    factor = 100 if "as a fraction" in words else 1
    return [
        (
            round(factor * float(mean), 2),
            float(spread) if spread else None,
            float(gain) if gain else None,
        )
        for mean, spread, gain in NUMBER.findall(words)
    ]


@pytest.fixture(scope="module")
def printed() -> Printed:
    found: Printed = set()
    for study in STUDIES.values():
        for number in study.published.values():
            found |= {(number.mean, number.spread, None), (number.mean, None, None)}
    combined = STUDIES["sfedpo-table-2"].published
    for (row, column), number in combined.items():
        if row.endswith("+sfedpo"):
            base = combined[row.removesuffix("+sfedpo"), column]
            found.add((number.mean, None, round(number.mean - base.mean, 2)))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_published_numbers_are_those_of_the_studies(page: Path, printed: Printed) -> None:
    assert not set(find_numbers(page.read_text())) - printed


def test_published_numbers_are_found() -> None:
    assert len(PAGES) > 15
    text = "**Published** (Table 3, Dir 0.3): 90.97 ± 0.16, 85.5. Ours: x.\n\nOther 1.5\n"
    assert find_numbers(text) == [(90.97, 0.16, None), (85.5, None, None)]
    text = "**Published** (as a fraction):\n\n| | A |\n|---|---|\n| x | 0.9541 |\n\n## 1.2"
    assert find_numbers(text) == [(95.41, None, None)]
    assert find_numbers("**Published**: full 85.07 (+1.35)") == [(85.07, None, 1.35)]
