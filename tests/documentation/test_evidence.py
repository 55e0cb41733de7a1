"""Each recipe page names the code that it was compared with, at a commit, and its tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from documentation.pages import ROOT

RECIPE_PAGES = sorted(set((ROOT / "docs/recipes").glob("*.md")) - {ROOT / "docs/recipes/README.md"})
REPOSITORY = re.compile(r"\]\(https://github\.com/[\w.-]+/[\w.-]+/blob/([0-9a-f]{10})/[^)]+\)")
NOT_VERIFIED = "Not verified against released code: "
TEST = re.compile(r"`(tests/[\w/]+\.py)`\s+\(((?:`test_\w+`,?\s*)+)\)")


def find_evidence(text: str) -> str:
    """Return the section about evidence, which is the last one of a page."""
    _, heading, section = text.partition("\n## Evidence\n")
    assert heading, "the page has no section 'Evidence'"
    assert "\n## " not in section, "the section is not the last one"
    return section


def check_evidence(text: str) -> None:
    section = find_evidence(text)
    commits = REPOSITORY.findall(section)
    assert bool(commits) != (NOT_VERIFIED in section), "a repository, or 'Not verified'"
    for commit in commits:
        assert re.search(rf"\)\s+at\s+`{commit}`", section), f"{commit} is not named in the text"
    tests = TEST.findall(section)
    assert tests, "no test is named"
    for file, names in tests:
        source = (ROOT / file).read_text()
        for name in re.findall(r"test_\w+", names):
            assert f"\ndef {name}(" in source, f"{file} has no {name}"


@pytest.mark.parametrize("page", RECIPE_PAGES, ids=lambda page: page.stem)
def test_recipe_page_names_code_at_a_commit_and_tests(page: Path) -> None:
    check_evidence(page.read_text())


def test_incomplete_evidence_is_found() -> None:
    code = "[a/b](https://github.com/a/b/blob/0123456789/c.py)"
    test = "Test: `tests/aggregation/test_step.py` (`test_step_does_not_change_its_arguments`)."
    check_evidence(f"# A\n\n## Evidence\n\nCompared with {code} at `0123456789`.\n{test}\n")
    check_evidence(f"# A\n\n## Evidence\n\n{NOT_VERIFIED}none.\n{test}\n")
    for wrong in (
        f"# A\n\nCompared with {code} at `0123456789`.\n{test}\n",
        f"# A\n\n## Evidence\n\nCompared with {code}.\n{test}\n",
        f"# A\n\n## Evidence\n\nCompared with {code} at `0123456789`.\n",
        f"# A\n\n## Evidence\n\nCompared with the released code.\n{test}\n",
        f"# A\n\n## Evidence\n\n{NOT_VERIFIED}none.\n{test.replace('its', 'the')}\n",
    ):
        with pytest.raises(AssertionError):
            check_evidence(wrong)
