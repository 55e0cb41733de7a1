"""The catalogue and the names for completion agree with the registries."""

from __future__ import annotations

import json
from pathlib import Path

from thalweg.cli.catalogue import PARTS
from thalweg.core.config import load_object
from thalweg.recipes import RECIPES

FILE = Path(__file__).parents[2] / "tools/catalogue.py"
REMEDY = "run python tools/catalogue.py and commit the result"


def test_catalogue_and_names_are_up_to_date() -> None:
    make_page, make_names = (load_object(f"{FILE}:{name}") for name in ("make_page", "make_names"))
    page, names = load_object(f"{FILE}:PAGE"), load_object(f"{FILE}:NAMES")
    assert page.read_text() == make_page(), REMEDY
    assert json.loads(names.read_text()) == make_names(), REMEDY


def test_every_part_has_a_note_and_a_section() -> None:
    notes = load_object(f"{FILE}:NOTES")
    assert notes.keys() == {"recipe", "baseline", "scenario", *PARTS}
    page = load_object(f"{FILE}:PAGE").read_text()
    assert all(f"| `{name}` |" in page for name in RECIPES)
