import thalweg
from thalweg.aggregation import BySamples, Equal
from thalweg.report.study import plan_study
from thalweg.scenarios.studies import STUDIES


def test_dpcs_study_holds_the_numbers_of_table_1():
    study = STUDIES["dpcs-table-1"]
    assert study.published["dpcs", "dpcs-fashion-mnist 200 rounds"].mean == 80.74
    assert study.published["powd", "dpcs-mnist 600 rounds"].mean == 97.04
    assert study.published["fedprox", "dpcs-cifar10 600 rounds"].mean == 50.51


def test_both_columns_of_a_data_set_share_their_runs(tmp_path):
    plan = plan_study(STUDIES["dpcs-table-1"], only=["dpcs-mnist"], out=tmp_path)
    assert len(plan.cells) == 2 * len(plan.jobs) == 2 * 5 * 3


def test_fedavg_weights_by_samples_and_in_a_second_row_equally(tmp_path):
    plan = plan_study(STUDIES["dpcs-table-1"], out=tmp_path)
    weights = {cell.row.label: cell.job.plan.recipe.weights for cell in plan.cells}
    assert weights["fedavg"] == weights["fedprox"] == BySamples()
    assert weights["fedavg, equal weights"] == weights["dpcs"] == weights["powd"] == Equal()
    assert ("fedavg, equal weights", "dpcs-mnist 200 rounds") not in STUDIES[
        "dpcs-table-1"
    ].published


def test_columns_of_the_figures_differ_in_one_setting(tmp_path):
    cells = [
        *plan_study(STUDIES["dpcs-figure-2"], out=tmp_path).cells,
        *plan_study(STUDIES["dpcs-figure-5"], out=tmp_path).cells,
    ]
    found = {}
    for cell in cells:
        scenario = cell.job.plan.scenario
        name, _, value = cell.column.note.partition("=")
        world = scenario.world
        got = {
            "alpha": world.partition.concentration,
            "imbalance": world.partition.imbalance,
            "change": world.label_change,
            "growth": world.arrivals.per_round,
            "lr": scenario.local.lr,
            "steps": scenario.local.steps,
        }
        assert scenario.rounds == 200
        if name != "ratios":
            assert got[name] == float(value)
            found.setdefault(name, set()).add(got[name])
    assert min(len(values) for values in found.values()) >= 3, "each is drawn as a curve"
    assert set(found) == {"alpha", "imbalance", "change", "growth", "lr", "steps"}


def test_sampling_ratios_are_the_numbers_of_the_rows(tmp_path):
    for cell in plan_study(
        STUDIES["dpcs-figure-5"], only=["dpcs-cifar10 ratios"], out=tmp_path
    ).cells:
        selection = cell.job.plan.recipe.selection
        share = getattr(selection, "participation", None) or selection.fraction
        assert cell.row.label.endswith(f" {share}")


def test_losses_before_and_after_new_samples_are_measured(tmp_path):
    plan = plan_study(
        STUDIES["dpcs-figure-2"], only=["dpcs-fashion-mnist change=0.5"], out=tmp_path
    )
    (job,) = {cell.job.folder.parent: cell.job for cell in plan.cells}.values()
    small = ["rounds=5", "data=digits", "net=linear", "prequential=0"]
    result = thalweg.run(
        job.plan.recipe, job.plan.scenario, overrides=small, workers=1, engine="fast"
    )
    assert "loss_change" not in result.metrics[0], "memories are empty"
    changes = [row["loss_change"] for row in result.metrics[1:]]
    assert min(changes) > 0


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
