from __future__ import annotations

from pathlib import Path

import pytest

from thalweg.engine.plan import BaselinePlan
from thalweg.report.study import plan_study
from thalweg.report.study_cells import StudyCell
from thalweg.scenarios.studies import STUDIES

STUDY = STUDIES["drifting-streams-table"]


@pytest.fixture
def cells(tmp_path: Path) -> list[StudyCell]:
    return [*plan_study(STUDY, seeds=1, out=tmp_path).cells]


def test_recipes_and_baselines_are_rows_of_one_table(cells: list[StudyCell]) -> None:
    kinds = {cell.row.label: isinstance(cell.job.plan, BaselinePlan) for cell in cells}
    assert [label for label, is_baseline in kinds.items() if not is_baseline] == [
        *("static", "fedavg", "fedavg, newest kept", "fedogd", "fedprox", "adaptive-fedavg"),
        *("flash", "feddrift", "drsr", "sfedpo"),
    ]


def test_baseline_labels_state_feedback_and_pooling(
    cells: list[StudyCell],
) -> None:
    for cell in cells:
        if isinstance(cell.job.plan, BaselinePlan):
            baseline = cell.job.plan.baseline
            assert ("at once" in cell.row.label) == (baseline.feedback == "sample")
            assert baseline.pooled != ("own" in cell.row.label)


def test_net_columns_apply_to_recipes_only(cells: list[StudyCell]) -> None:
    for cell in cells:
        if cell.column.note == "mlp":
            assert not isinstance(cell.job.plan, BaselinePlan)


def test_all_stream_columns_show_prequential_accuracy() -> None:
    assert {STUDY.metric_of(column) for column in STUDY.columns} == {"prequential_accuracy"}


def test_baseline_cell_has_a_folder_and_a_command(
    cells: list[StudyCell],
) -> None:
    cell = next(c for c in cells if c.row.label == "tree, pooled" and c.column.label == "elec2")
    assert cell.job.folder.parts[-3:] == ("elec2", "river-tree-pooled=true", "seed-0")
    assert cell.job.command == "thalweg run river-tree --on elec2 --seed 0 --set pooled=true"


def test_learning_rates_of_flights_are_chosen_on_earlier_days_and_another_seed() -> None:
    rates, table = STUDIES["flights-minutes-rates"], STUDIES["flights-minutes-table"]
    assert not set(rates.seeds) & set(table.seeds)
    assert rates.columns[0].overrides == (f"rounds={table.columns[0].after}",)
    chosen = {row.recipe_spec for row in table.rows if "lr=" in row.recipe_spec}
    assert len(chosen) == 2
    assert chosen <= {row.recipe_spec for row in rates.rows}


def test_rows_that_are_run_once_are_baselines_without_random_numbers() -> None:
    for name in ("flights-minutes-table", "drifting-streams-table"):
        for cell in plan_study(STUDIES[name], seeds=1).cells:
            is_baseline = isinstance(cell.job.plan, BaselinePlan)
            assert cell.row.once == (is_baseline and "forest" not in cell.row.label)
