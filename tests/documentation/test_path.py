"""The index leads to every page, and the figures that it quotes are on the linked pages."""

from __future__ import annotations

import re
from pathlib import Path

from documentation.pages import ROOT, prose

INDEX = ROOT / "docs/README.md"
FIGURE = re.compile(r"\d+\.\d+(?: ± \d+\.\d+)?")


def linked_files(page: Path) -> set[Path]:
    """Return the files of the project that a page links to."""
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", prose(page))
    return {(page.parent / link).resolve() for link in links if not re.match(r"\w+:", link)}


def test_every_page_is_reachable_from_the_index() -> None:
    seen: set[Path] = set()
    pages = [INDEX]
    while pages:
        page = pages.pop()
        seen.add(page)
        if page.suffix == ".md":
            pages += [each for each in linked_files(page) if each.is_file() and each not in seen]
    wanted = {*ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/**/*.ipynb"), ROOT / "README.md"}
    assert sorted(str(page.relative_to(ROOT)) for page in wanted - seen) == []


def test_how_tos_are_linked_by_the_index_itself() -> None:
    wanted = {*ROOT.glob("docs/*.md"), *ROOT.glob("docs/notebooks/*"), *ROOT.glob("docs/results/*")}
    missing = wanted - linked_files(INDEX) - {INDEX}
    assert sorted(str(page.relative_to(ROOT)) for page in missing) == []


def test_quoted_figures_are_on_the_linked_pages() -> None:
    rows = [line for line in INDEX.read_text().splitlines() if line.startswith("| ")]
    quotes = 0
    for row in rows[1:]:
        _, _, evidence, where, _ = row.split("|")
        (link,) = re.findall(r"\(([^)#]+)", where)
        page = (INDEX.parent / link).read_text()
        for figure in FIGURE.findall(re.sub(r"<!--.*?-->", "", evidence)):
            quotes += 1
            assert figure in page, f"{figure} is not on {link}"
    assert quotes > 12
