from __future__ import annotations

from pathlib import Path

import pytest

from thalweg.drift import RiverAlarm
from thalweg.recipes import Recipe
from thalweg.report.study import plan_study, reproduce
from thalweg.scenarios.studies import STUDIES

STUDY = STUDIES["alarms-table"]


@pytest.fixture
def recipes(tmp_path: Path) -> dict[str, Recipe]:
    cells = plan_study(STUDY, seeds=1, out=tmp_path).cells
    return {cell.row.label: cell.job.plan.recipe for cell in cells}  # type: ignore[union-attr]


def test_alarms_study_uses_the_same_memory_in_all_rows(
    recipes: dict[str, Recipe],
) -> None:
    assert {repr(recipe.memory) for recipe in recipes.values()} == {"Fifo()"}
    watching = [label for label, recipe in recipes.items() if recipe.alarm is not None]
    assert [label for label in recipes if label not in watching] == ["fedavg", "feddrift"]


def test_river_detectors_have_settings_for_one_value_per_round(recipes: dict[str, Recipe]) -> None:
    kswin = recipes["river KSWIN"].alarm
    assert isinstance(kswin, RiverAlarm)
    assert kswin.parse_settings() == {"window_size": 20, "stat_size": 7}


def test_quick_alarms_study_runs_past_the_drifts(tmp_path: Path) -> None:
    cells = plan_study(STUDY, scale="quick", out=tmp_path).cells
    assert {cell.column.label for cell in cells} == set(STUDY.column_labels)
    assert {cell.job.plan.scenario.rounds for cell in cells} == {36}


def test_quick_alarms_study_reports_alarms_on_digits(tmp_path: Path) -> None:
    only = ["page-hinkley", "feddrift, by alarm", "alarms-digits half"]
    result = reproduce(STUDY, only=only, data="digits", scale="quick", workers=1, out=tmp_path)
    assert all(cell.is_done for cell in result.cells), [cell.reason for cell in result.cells]
    table = (result.folder / "table.md").read_text()
    page = (result.folder / "index.html").read_text()
    assert "### Alarms" in table
    assert "| recipe | alarms | detected | delay | false |" in table
    assert "detected" in page
