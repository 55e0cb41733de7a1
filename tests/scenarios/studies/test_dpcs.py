from thalweg.report.study import plan_study
from thalweg.scenarios.studies import STUDIES


def test_dpcs_study_holds_the_numbers_of_table_1():
    study = STUDIES["dpcs-table-1"]
    assert study.published["dpcs", "dpcs-fashion-mnist 200 rounds"].mean == 80.74
    assert study.published["powd", "dpcs-mnist 600 rounds"].mean == 97.04
    assert study.published["fedprox", "dpcs-cifar10 600 rounds"].mean == 50.51


def test_both_columns_of_a_data_set_share_their_runs(tmp_path):
    plan = plan_study(STUDIES["dpcs-table-1"], only=["dpcs-mnist"], out=tmp_path)
    assert len(plan.cells) == 2 * len(plan.jobs) == 2 * 4 * 3


def test_all_dpcs_rows_select_six_of_twenty_clients(tmp_path):
    for cell in plan_study(STUDIES["dpcs-table-1"], out=tmp_path).cells:
        selection = cell.job.plan.recipe.selection
        share = getattr(selection, "participation", None) or selection.fraction
        assert share * cell.job.plan.scenario.world.num_clients == 6


def test_dpcs_and_sfedpo_are_tested_alone_and_combined(tmp_path):
    plan = plan_study(STUDIES["dpcs-sfedpo"], out=tmp_path)
    parts = {
        cell.row.label: [
            type(part).__name__
            for part in (
                cell.job.plan.recipe.selection,
                cell.job.plan.recipe.memory,
                cell.job.plan.recipe.weights,
            )
        ]
        for cell in plan.cells
    }
    assert parts["none"] == ["Uniform", "UniformRatio", "Equal"]
    assert parts["dpcs"] == ["Dpcs", "UniformRatio", "Equal"]
    assert parts["dds"] == ["Uniform", "Dds", "Equal"]
    assert parts["saw"] == ["Uniform", "UniformRatio", "ShiftAware"]
    assert parts["dpcs + dds + saw"] == ["Dpcs", "Dds", "ShiftAware"]
