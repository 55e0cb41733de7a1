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


@pytest.mark.parametrize(
    "name", ["streams-synthetic-table", "streams-cifar10-table", "streams-cifar10-small-table"]
)
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


def test_scenarios_have_the_nets_of_the_paper(tmp_path):
    for name, num_params in (("streams-cifar10-table", 3_353_034),):
        for cell in plan_study(STUDIES[name], out=tmp_path).cells:
            net = cell.job.plan.scenario.net.build((3, 32, 32), 10)
            assert net.num_params == num_params
    plan = plan_study(STUDIES["streams-shakespeare-small-table"], out=tmp_path)
    net = plan.cells[0].job.plan.scenario.net.build((80, 100), 100)
    assert net.num_params == 226_180
    assert plan.cells[0].job.plan.scenario.data.min_samples == 200


def test_small_tables_have_the_published_numbers_of_the_whole_ones():
    for scenario in ("streams-cifar10", "streams-shakespeare"):
        small, whole = STUDIES[f"{scenario}-small-table"], STUDIES[f"{scenario}-table"]
        assert small.published == whole.published
        assert len(small.published) >= 15


def test_averaged_rows_evaluate_the_average_of_algorithm_1(tmp_path):
    plan = plan_study(STUDIES["streams-synthetic-table"], only=["average"], out=tmp_path)
    powers = {cell.row.label: cell.job.plan.recipe.server.power for cell in plan.cells}
    assert powers == {
        "uniform, averaged": 0.0,
        "stream-ours, averaged": 0.0,
        "uniform, late average": 3.0,
        "stream-ours, late average": 3.0,
    }


def test_every_row_of_every_study_gives_a_valid_plan():
    for study in STUDIES.values():
        for row in study.rows:
            if not row.best_of:
                column = next(each for each in study.columns if row in study.rows_of(each))
                name, *changes = recipe_parts(study.recipe_of(row, column))
                plan = make_any_plan(name, column.scenario, overrides=[*changes, *column.overrides])
                assert plan.scenario.name == column.scenario
                assert isinstance(plan, BaselinePlan) or plan.recipe.name == name
