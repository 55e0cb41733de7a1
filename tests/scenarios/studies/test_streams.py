import pytest

from thalweg.engine.plan import BaselinePlan, make_any_plan
from thalweg.report.comparison import recipe_parts
from thalweg.report.study import plan_study
from thalweg.scenarios.studies import STUDIES


def test_every_stream_strategy_has_a_published_number_in_every_column():
    study = STUDIES["streams-cifar10-table"]
    assert study.column_labels == [
        "streams-cifar10 5%",
        "streams-cifar10 20%",
        "streams-cifar10 50%",
    ]
    assert study.published["stream-ours", "streams-cifar10 20%"].mean == 66.9
    assert study.published["historical", "streams-cifar10 50%"].spread == 5.60
    assert study.published["optimal", "streams-cifar10 5%"].mean == 63.7


def test_optimal_row_is_the_best_of_the_mass_grid_of_the_paper():
    rows = {row.label: row for row in STUDIES["streams-synthetic-table"].rows}
    assert rows["optimal"].best_of == ("fresh", "historical", "mass 0.2", "mass 0.5", "mass 0.8")


@pytest.mark.parametrize("name", ["streams-synthetic-table", "streams-cifar10-table"])
def test_stream_plans_match_their_labels(name, tmp_path):
    plan = plan_study(STUDIES[name], out=tmp_path)
    for cell in plan.cells:
        scenario, sample_weights = cell.job.plan.scenario, cell.job.plan.recipe.sample_weights
        assert f"{scenario.world.historical_data:.0%}" in cell.column.label
        assert scenario.validation == 0.5
        if cell.row.label.startswith("mass"):
            assert sample_weights.strategy == "mass"
            assert cell.row.label == f"mass {sample_weights.mass}"


def test_natural_clients_use_shares_of_clients():
    study = STUDIES["streams-writers-table"]
    assert study.columns[0].overrides[0] == "world.historical=0.05"


def test_every_row_of_every_study_gives_a_valid_plan():
    for study in STUDIES.values():
        for row in study.rows:
            if not row.best_of:
                (name, *changes), column = recipe_parts(row.recipe_spec), study.columns[0]
                plan = make_any_plan(name, column.scenario, overrides=[*changes, *column.overrides])
                assert plan.scenario.name == column.scenario
                assert isinstance(plan, BaselinePlan) or plan.recipe.name == name
