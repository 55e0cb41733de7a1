import re

import pytest

from thalweg.scenarios.studies import STUDIES


@pytest.mark.parametrize(
    ("study", "row", "column", "number"),
    [
        ("table-1", "sfedpo", "fashion-mnist-partial", (86.77, 0.42)),
        ("table-1", "is", "ham10000-partial", (42.99, 3.18)),
        ("table-1", "fedogd", "fashion-mnist-full", (85.04, 0.46)),
        ("table-1", "ode", "fashion-mnist-partial", (80.21, 0.79)),
        ("table-2", "fedexp+sfedpo", "cifar10-partial", (66.57, None)),
        ("table-2", "fedexp", "cifar10-partial", (58.81, None)),  # 66.57 - 7.76
        ("table-3", "noise 0.10", "cifar10-partial", (61.90, 0.15)),
        ("table-5", "flash", "cifar10-partial N=10", (32.69, 3.52)),
        ("table-6", "sfedpo", "cifar10-cnn-partial", (70.56, 0.71)),
        ("table-6", "drsr", "cifar10-full resnet34", (57.80, 1.03)),
        ("table-7", "js", "cifar10-partial", (63.75, None)),
        ("table-8", "sfedpo", "cifar10-partial μ=0.4 σ=0.01", (66.56, None)),
        ("table-8", "uniform", "cifar10-full μ=0.8 σ=0.03", (67.23, None)),  # 69.16 - 1.93
    ],
)
def test_sfedpo_studies_hold_the_numbers_of_the_paper(study, row, column, number):
    published = STUDIES[f"sfedpo-{study}"].published[row, column]
    assert (published.mean, published.spread) == number


@pytest.mark.parametrize("study", STUDIES.values(), ids=lambda study: study.name)
def test_study_labels_that_are_referenced_exist(study):
    for row, column in study.published:
        assert row in study.row_labels
        assert column in study.column_labels
    assert study.reference in study.row_labels
    assert {row.against for row in study.rows} <= {"", *study.row_labels}
    assert {label for column in study.columns for label in column.rows} <= set(study.row_labels)


def test_reported_seeds_differ_from_the_tuning_seeds():
    mine = [study for name, study in STUDIES.items() if "sfedpo" in name]
    assert all(study.seeds == (4, 5, 6) for study in mine)
    assert all("chosen on seeds 0 to 3" in study.description for study in mine)


def test_fedavg_with_sfedpo_is_the_sfedpo_recipe():
    rows = {row.label: row.recipe_spec for row in STUDIES["sfedpo-table-2"].rows}
    assert rows["fedavg+sfedpo"] == "sfedpo"
    assert rows["fedprox+sfedpo"] == "fedprox+sfedpo"


def test_cpu_scenarios_come_first_in_table_6():
    labels = STUDIES["sfedpo-table-6"].column_labels
    assert [label for label in labels if "best" not in label and "ten" not in label][:2] == [
        "cifar10-cnn-full",
        "cifar10-cnn-partial",
    ]


def test_a_second_reading_of_a_baseline_has_no_published_number():
    table = STUDIES["sfedpo-table-1"]
    with_number = {row for row, _ in table.published}
    readings = [label for label in table.row_labels if ", " in label]
    assert len(readings) == 6
    assert not with_number & set(readings)
    assert {label.partition(",")[0] for label in readings} < with_number
    rows = {row.label: row.recipe_spec for row in table.rows}
    for label in readings:  # every reading is another run than the row with the number
        assert rows[label] != rows[label.partition(",")[0]]


def test_every_column_of_table_1_is_followed_by_its_best_round_and_last_evaluations():
    columns = STUDIES["sfedpo-table-1"].columns
    for final, best, last in zip(columns[::3], columns[1::3], columns[2::3], strict=True):
        assert final.scenario == best.scenario == last.scenario
        assert (final.note, best.note, last.note) == ("", "best", "last ten")
        assert [each.metric for each in (final, best, last)] == [
            None,
            "best_accuracy",
            "last_ten_accuracy",
        ]


@pytest.mark.parametrize("number", [1, 2, 3, 6, 7])
def test_all_readings_of_the_reported_round_are_compared_with_the_same_cell(number):
    study = STUDIES[f"sfedpo-table-{number}"]
    finals = [key for key in study.published if not key[1].endswith(("best", "last ten"))]
    assert len(study.published) == 3 * len(finals)
    for row, column in finals:
        for note in ("best", "last ten"):
            again = f"{column} {note}"
            assert study.published[row, again][:2] == study.published[row, column][:2]
            assert study.published_cell(row, again) == study.published_cell(row, column)


@pytest.mark.parametrize("number", [3, 5, 7, 8])
def test_tables_on_cifar10_have_the_same_columns_with_a_small_net_and_small_data(number):
    study = STUDIES[f"sfedpo-table-{number}"]
    columns = {
        data: [c for c in study.columns if re.fullmatch(rf"{data}-(full|partial)", c.scenario)]
        for data in ("cifar10", "cifar10-cnn", "fashion-mnist")
    }
    for mine in columns.values():
        assert [(c.note, c.overrides, c.metric) for c in mine] == [
            (c.note, c.overrides, c.metric) for c in columns["cifar10"]
        ]
    assert [c.is_reduced for c in study.columns].count(True) == len(columns["cifar10-cnn"])
    for (row, column), published in study.published.items():
        small = column.replace("cifar10-", "cifar10-cnn-")
        if "-cnn-" not in column:
            assert study.published[row, small][:2] == published[:2]
            assert study.published_cell(row, small) == study.published_cell(row, column)
    assert not any(column.startswith("fashion") for _, column in study.published)


def test_the_numbers_of_rounds_of_figure_2_are_moments_of_one_run():
    columns = [c for c in STUDIES["sfedpo-figure-2"].columns if c.note.startswith("R=")]
    assert {c.overrides for c in columns} == {("rounds=200",)}
    assert [c.until for c in columns] == [50, 100, 150, 200]
