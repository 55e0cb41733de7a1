"""`make lint` finds Markdown lines of prose that are too long."""

from __future__ import annotations

from documentation.pages import ROOT
from thalweg.core.config import load_object

long_lines = load_object(f"{ROOT}/tools/check_markdown.py:long_lines")
LONG = "word " * 30


def test_long_lines_of_prose_are_found() -> None:
    assert list(long_lines(f"# Title\n\n{LONG}\n- {LONG}\n")) == [3, 4]


def test_code_tables_and_link_addresses_do_not_count() -> None:
    link = f"[text](https://example.org/{'x' * 120})"
    text = f"```\n{LONG}\n```\n\n    {LONG}\n\n| {LONG} |\n\nSee {link}.\n"
    assert list(long_lines(text)) == []
