import json
from collections import Counter
from dataclasses import replace

import pytest

from thalweg.aggregation import Flash
from thalweg.report.events import drift_columns
from thalweg.report.study import plan_study, reproduce
from thalweg.report.study_table import study_markdown
from thalweg.scenarios.studies import STUDIES, replace_data
from thalweg.scenarios.studies.drift import (
    CIFAR,
    CIFAR100,
    DENSE,
    FASHION,
    METHODS,
    RELEASED,
    RELEASED_SMALL,
    SCENARIOS,
    SMALL,
    studies,
)

NAMES = [study.name for study in studies()]


def published(name, row, column):
    number = STUDIES[name].published[row, column]
    return number.mean, number.spread


def plans(name, tmp_path, **options):
    cells = plan_study(STUDIES[name], seeds=[0], out=tmp_path, **options).cells
    return {(cell.row.label, cell.column.label): cell.job.plan for cell in cells}


def test_drift_studies_hold_the_numbers_of_the_paper():
    assert published("feddaa-table-1", "fedavg", FASHION) == (42.53, 0.34)
    assert published("feddaa-table-1", "fedavg", SMALL) == (42.53, 0.34)
    assert published("feddaa-table-1", "fedavg", DENSE) == (42.53, 0.34)
    assert published("feddaa-table-1", "feddrift", CIFAR) == (58.18, 0.80)
    assert published("feddaa-table-1", "oracle", CIFAR100) == (52.96, 0.38)
    assert published("feddaa-released", "fedrc", RELEASED) == (56.82, 0.61)
    assert published("feddaa-released", "fedrc", RELEASED_SMALL) == (56.82, 0.61)
    assert published("feddaa-table-2", "flash", f"{CIFAR} (3, 240°) by labels") == (37.09, 0.22)
    assert published("feddaa-table-2", "oracle", f"{CIFAR} (1, 0°) by labels") == (69.20, 0.66)
    assert published("feddaa-ablation", "without RDLD", CIFAR) == (62.46, 0.24)
    assert published("feddaa-ablation", "without NCD", CIFAR100) == (40.18, 0.37)
    assert published("feddaa-rates", "feddaa", f"{FASHION} rate=0.8") == (72.39, 0.37)
    assert published("feddaa-rates", "feddaa", f"{CIFAR100} rate=1.0") == (53.51, 0.39)
    assert published("feddaa-dirichlet", "feddaa", f"{CIFAR} alpha=2.0") == (65.72, 0.59)
    assert published("feddaa-dirichlet", "feddaa", f"{CIFAR100} alpha=0.5") == (50.65, 0.91)


def test_accuracy_over_the_rounds_has_ten_points_in_each_step(tmp_path):
    for (row, _), plan in plans("feddaa-figure-4", tmp_path).items():
        assert (plan.scenario.rounds, plan.scenario.evaluate_every) == (240, 4), row
        assert plan.scenario.world.rounds_per_step == 40
    assert STUDIES["feddaa-figure-4"].rows == METHODS


def test_the_paper_has_138_cells():
    cells = {
        (study.table, study.published_cell(row, column))
        for study in studies()
        for row, column in study.published
    }
    sizes = Counter(table for table, _ in cells)
    assert sizes == {"Table 1": 21, "Table 2": 84, "Table 3": 12, "Table 4": 12, "Table 5": 9}


def test_found_and_given_model_counts_have_the_same_published_number():
    for column in (FASHION, CIFAR):
        both = [published("feddaa-table-1", row, column) for row in ("feddaa", "feddaa given")]
        assert both[0] == both[1]


def test_published_task_numbers_are_only_for_cifar10_by_labels():
    found = STUDIES["feddaa-table-2"].published
    assert len(found) == 12 * 8
    assert all(column.startswith(CIFAR) and column.endswith("by labels") for _, column in found)


@pytest.mark.parametrize("name", NAMES)
def test_published_drift_numbers_refer_to_existing_cells(name):
    study = STUDIES[name]
    for row, column in study.published:
        assert row in study.row_labels
        assert column in study.column_labels


OF_OTHERS = {"feddaa-steps", "feddaa-table-2"}  # studies with the runs of Table 1


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OF_OTHERS])
@pytest.mark.parametrize("scale", ["paper", "quick"])
def test_bank_steps_match_the_steps_of_the_world(name, scale, tmp_path):
    for (_, column), plan in plans(name, tmp_path, scale=scale).items():
        scenario, steps = plan.scenario, plan.scenario.world.rounds_per_step
        usual = 15 if "15 rounds" in column else 40
        assert scenario.rounds == 6 * steps
        assert steps == (usual if scale == "paper" else 4)
        assert scenario.evaluate_every == (4 if name == "feddaa-figure-4" else steps)
        assert getattr(plan.recipe.bank, "every", steps) == steps
        assert plan.local.keep_rounds == (steps if name == "feddaa-released" else None)
        assert scenario.tasks == (name != "feddaa-figure-4")


def test_drift_learning_rates_and_settings_match_the_paper(tmp_path):
    found = plans("feddaa-table-1", tmp_path)
    rates = {row: found[row, FASHION].local.lr for row, column in found if column == FASHION}
    assert rates == {
        "fedavg": 0.06,
        "adaptive-fedavg": 0.06,
        "flash": 0.03,
        "flash, small strides": 0.03,
        "fedrc": 0.1,
        "feddrift": 0.06,
        "feddrift reassigned": 0.06,
        "feddaa": 0.06,
        "feddaa given": 0.06,
        "feddaa explained": 0.06,
        "feddaa, true drifts": 0.06,
        "oracle": 0.1,
        "local-only": 0.06,
        "fine-tuned": 0.06,
        "centralised": 0.06,
    }
    in_every_round = {"local-only", "centralised"}
    chosen = [plan for (row, _), plan in found.items() if row not in in_every_round]
    assert all(plan.recipe.selection.fraction == 0.5 for plan in chosen)
    ours = [found[row, FASHION].recipe.memory for row in ("fedavg", *in_every_round, "fine-tuned")]
    assert len(set(ours)) == 1
    flash = found["flash", FASHION].recipe.server
    assert (flash.lr, flash.beta_mean, flash.beta_var) == (1.0, 0.5, 0.5)
    assert flash.adaptivity_floor == 1e-9
    adaptive = found["adaptive-fedavg", FASHION].recipe.server
    assert (adaptive.beta_mean, adaptive.decay) == (0.5, "none")
    assert found["fedrc", FASHION].recipe.bank.num_models == 2
    assert found["feddrift", FASHION].recipe.bank.initial_models == 2


def test_feddrift_reassigned_is_a_row_without_published_number(tmp_path):
    found = plans("feddaa-table-1", tmp_path)
    banks = {row: found[row, FASHION].recipe.bank for row in ("feddrift", "feddrift reassigned")}
    assert [bank.reassign for bank in banks.values()] == [False, True]
    assert not any("reassigned" in row for row, _ in STUDIES["feddaa-table-1"].published)


def test_flash_small_strides_is_a_row_without_published_number(tmp_path):
    found = plans("feddaa-table-1", tmp_path)["flash, small strides", FASHION].recipe.server
    assert found == Flash()
    assert not any("strides" in row for row, _ in STUDIES["feddaa-table-1"].published)


def test_feddaa_number_of_models_is_found_or_given(tmp_path):
    found = plans("feddaa-table-1", tmp_path)
    assert found["feddaa", CIFAR].recipe.bank.cluster_count == "ncd"
    given = found["feddaa given", CIFAR].recipe.bank
    assert (given.cluster_count, given.given) == ("given", (2, 3, 4))


def test_feddaa_explained_is_a_row_without_published_number(tmp_path):
    found = plans("feddaa-table-1", tmp_path)
    weights = {
        row: found[row, FASHION].recipe.weights.basis for row in ("feddaa", "feddaa explained")
    }
    assert weights == {"feddaa": "learnt", "feddaa explained": "explained"}
    assert not any("explained" in row for row, _ in STUDIES["feddaa-table-1"].published)


def test_feddaa_ablation_removes_one_part_at_a_time(tmp_path):
    found = plans("feddaa-ablation", tmp_path)
    parts = {
        row: [getattr(plan.recipe.bank, f"use_{part}") for part in ("ncd", "rdld", "daa")]
        for (row, column), plan in found.items()
        if column == FASHION
    }
    assert parts == {
        "full": [True, True, True],
        "without NCD": [False, True, True],
        "without RDLD": [True, False, True],
        "without DAA": [True, True, False],
        "true drifts": [True, True, True],
        "full, found": [True, True, True],
    }


@pytest.mark.parametrize(
    ("name", "row"), [("feddaa-table-1", "feddaa, true drifts"), ("feddaa-detector", "true drifts")]
)
def test_only_the_rows_with_true_drifts_receive_them(name, row, tmp_path):
    found = plans(name, tmp_path)
    with_truth = {label for (label, _), plan in found.items() if plan.recipe.ground_truth}
    assert with_truth - {"oracle"} == {row}
    assert not any(label == row for label, _ in STUDIES[name].published)
    assert "an oracle" in STUDIES[name].description


def test_feddaa_detector_weights_clients_by_explained_samples(tmp_path):
    for (_, column), plan in plans("feddaa-detector", tmp_path).items():
        assert plan.recipe.weights.basis == "explained"
        assert plan.recipe.bank.cluster_count == "ncd"
        assert plan.scenario.name == ("drift-digits" if "15 rounds" in column else DENSE)


def test_feddaa_released_has_the_rows_of_table_1_without_reassignment():
    table, found = STUDIES["feddaa-table-1"], STUDIES["feddaa-released"]
    assert set(table.row_labels) - set(found.row_labels) == {"feddrift reassigned"}
    assert found.column_labels == [RELEASED, RELEASED_SMALL]


def test_feddaa_sweeps_cover_the_values_of_the_paper(tmp_path):
    rates = {plan.recipe.selection.fraction for plan in plans("feddaa-rates", tmp_path).values()}
    assert rates == {0.2, 0.5, 0.8, 1.0}
    mixes = {plan.scenario.world.dirichlet for plan in plans("feddaa-dirichlet", tmp_path).values()}
    assert mixes == {0.5, 1.0, 2.0}


def test_drift_tables_share_their_runs(tmp_path):
    jobs = {
        name: {job.folder for job in plan_study(name, seeds=[0], out=tmp_path).jobs}
        for name in NAMES
    }
    number = len(SCENARIOS)
    assert jobs["feddaa-table-2"] < jobs["feddaa-table-1"]
    assert len(jobs["feddaa-table-1"] - jobs["feddaa-table-2"]) == 3 * number, "the baselines"
    assert len(jobs["feddaa-ablation"] & jobs["feddaa-table-1"]) == 2 * number
    assert len(jobs["feddaa-rates"] & jobs["feddaa-table-1"]) == 2 * number
    assert not jobs["feddaa-released"] & jobs["feddaa-table-1"]


def test_task_columns_state_how_mixtures_are_assigned():
    for column in STUDIES["feddaa-table-2"].columns:
        assert column.label.endswith(f"by {column.assignment}")


def small(name, *rows):
    """Return a study on digits with twelve rounds."""
    study = replace_data(STUDIES[name], "digits")
    size = ("world.num_clients=6", "net.hidden=[8]", "local.batch_size=64")
    quick = ("rounds=12", "world.rounds_per_step=2", "evaluate_every=2", *size)
    chosen = tuple(replace(row, quick=()) for row in METHODS if row.label in rows)
    return replace(study, rows=chosen, quick=quick, reference=rows[0], seeds=(0,))


def test_drift_table_1_is_the_mean_over_step_ends(tmp_path):
    study = small("feddaa-table-1", "oracle", "fedavg")
    result = reproduce(study, scale="quick", workers=1, out=tmp_path)
    runs = {
        file.parent.parent.name: json.loads(file.read_text())["steps"]["accuracy"]
        for file in tmp_path.glob("drift-digits*/*/seed-0/summary.json")
    }
    for cell, recipe in zip(result.cells, ("fedavg-retrain", "oracle"), strict=True):
        assert cell.is_done, cell.reason
        assert len(runs[recipe]) == 6
        assert cell.rows[-1]["accuracy"] == pytest.approx(sum(runs[recipe]) / 6)
    (steps,) = [column for column in drift_columns(result.cells) if column.heading == "steps"]
    assert steps.entries == [f"{100 * sum(runs[r]) / 6:.2f}" for r in ("fedavg-retrain", "oracle")]
    text = study_markdown(result)
    assert "averaged over clients and over the ends of the steps between drifts" in text


def test_drift_table_2_has_every_task_of_the_world(tmp_path):
    result = reproduce(small("feddaa-table-2", "fedavg"), scale="quick", out=tmp_path)
    assert len(result.study.columns) == 16
    assert all(cell.is_done for cell in result.cells), [cell.reason for cell in result.cells]
    of_tasks = [s for of in result.summaries().values() for s in of]
    assert all(s.accuracy is not None for s in of_tasks)
    page = (result.folder / "index.html").read_text()
    assert page.count("Steps between drifts</h3>") == 1, "the runs of all columns are the same"


def test_steps_are_the_runs_of_table_1_at_the_ends_of_the_steps(tmp_path):
    plan = plan_study("feddaa-steps", data="digits", seeds=1, out=tmp_path)
    assert plan.study.column_labels == [
        "drift-digits all steps",
        *(f"drift-digits step {step}" for step in range(1, 7)),
    ]
    assert [column.step for column in plan.study.columns] == [None, 1, 2, 3, 4, 5, 6]
    table = plan_study("feddaa-table-1", data="digits", seeds=1, out=tmp_path)
    assert {job.folder for job in plan.jobs} == {job.folder for job in table.jobs}
