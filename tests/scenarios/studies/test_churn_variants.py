"""The studies of Tables 12 to 14 on client arrival and departure."""

import numpy as np
import pytest

from thalweg.local import Proximal, TaskLoss
from thalweg.report.study import plan_study, reproduce
from thalweg.report.sweeps import find_sweeps
from thalweg.scenarios.studies import STUDIES
from thalweg.scenarios.studies.churn_variants import studies, unseen_labels
from thalweg.sessions import Average, Reset, WarmStart
from thalweg.streams.label_partitions import Distinct, Half, PartialOverlap

UNSEEN, SCALE, PILOT = (study.name for study in studies())


def plans_of(name, tmp_path):
    cells = plan_study(STUDIES[name], seeds=[0], out=tmp_path).cells
    return {(cell.row.label, cell.column.label): cell.job.plan for cell in cells}


@pytest.mark.parametrize(
    ("name", "row", "column", "number"),
    [
        (UNSEEN, "proposed", "churn-fashion-mnist labels 8 and 9", 94.98),
        (UNSEEN, "average", "churn-fashion-mnist labels 0 and 1", 95.89),
        (PILOT, "fedprox random pilot", "churn-cifar10 session 4", 79.47),
        (PILOT, "fedprox proposed", "churn-cifar10 session 6", 81.69),
    ],
)
def test_variants_hold_the_numbers_of_the_paper(name, row, column, number):
    assert STUDIES[name].published[row, column].mean == number


def test_variants_have_all_numbers_on_data_that_they_have():
    def count(name):
        study = STUDIES[name]
        return len({study.published_cell(row, column) for row, column in study.published})

    assert (count(UNSEEN), count(SCALE), count(PILOT)) == (3, 0, 6)


def test_labels_of_the_last_session_were_not_there_before(tmp_path):
    kinds = {"proposed": WarmStart, "previous": Reset, "average": Average}
    new = {"8 and 9": [8, 9], "0 and 1": [0, 1], "4 and 5": [4, 5]}
    for (row, column), plan in plans_of(UNSEEN, tmp_path).items():
        scenario = plan.scenario
        assert type(plan.recipe.session_start) is kinds[row]
        assert scenario.world.partition == Distinct(), "client k has label k"
        table = scenario.sessions.timetable(10, scenario.rounds, 0)
        assert table.starts.tolist() == [0, 50, 100, 150, 200]
        members = table.members(209).tolist()
        assert members == new[column.partition("labels ")[2]]
        before = np.concatenate([table.members(rnd) for rnd in range(200)])
        assert not set(members) & set(before.tolist())
        assert len(set(before.tolist())) == 4
        assert scenario.rounds == 210


def test_scales_of_the_warm_start_are_a_sweep_that_contains_the_mean(tmp_path):
    study = STUDIES[SCALE]
    (values,) = find_sweeps({label: label for label in study.row_labels}).values()
    assert list(values) == [0, 10, 50, 80, 100, 120, 140]
    for (row, column), plan in plans_of(SCALE, tmp_path).items():
        assert plan.recipe.session_start.scale == float(row.removeprefix("R="))
        assert plan.recipe.session_start.first_start == "random"
        is_half = " half " in column
        assert isinstance(plan.scenario.world.partition, Half if is_half else PartialOverlap)
        assert plan.recipe.objective == (TaskLoss() if is_half else Proximal(1.0))


def test_scale_ten_has_the_same_settings_as_the_tables_of_other_labels(tmp_path):
    mine = plans_of(SCALE, tmp_path)["R=10", "churn-mnist fedavg half session 5"]
    other = plans_of("churn-half-table", tmp_path)["fedavg proposed", "churn-mnist session 5"]
    assert (mine.scenario, mine.local) == (other.scenario, other.local)
    assert mine.recipe.session_start == other.recipe.session_start


def test_random_pilots_differ_from_the_others_in_nothing_else(tmp_path):
    plans = plans_of(PILOT, tmp_path)
    for (row, column), plan in plans.items():
        start = plan.recipe.session_start
        assert start == WarmStart(first_start="random", random_pilot="random" in row)
        assert isinstance(plan.scenario.world.partition, PartialOverlap)
        host = row.partition(" ")[0]
        assert plan.recipe.objective == plans[f"{host} proposed", column].recipe.objective
    assert not any(row.startswith("moon") for row, column in plans if "cifar10" in column)


def test_proposed_rows_share_their_runs_with_the_table_of_these_labels(tmp_path):
    def folders(name):
        cells = plan_study(STUDIES[name], seeds=[0], only=["moon proposed"], out=tmp_path).cells
        return {cell.job.folder for cell in cells}

    assert folders(PILOT) == folders("churn-partial-overlap-table")


def test_columns_of_cifar10_end_after_ten_rounds_of_their_last_session(tmp_path):
    for cell in plan_study(STUDIES[PILOT], only=["cifar10"], seeds=[0], out=tmp_path).cells:
        scenario = cell.job.plan.scenario
        starts = scenario.sessions.timetable(10, scenario.rounds, 0).starts
        assert starts[1] == scenario.evaluate_every == 40
        assert scenario.rounds - starts[-1] == 10
        assert cell.column.session <= len(starts) - 1 == 6


def test_quick_study_of_unseen_labels_shows_their_session(tmp_path):
    study = unseen_labels()
    result = reproduce(study, only=["average", "0 and 1"], scale="quick", workers=1, out=tmp_path)
    (cell,) = result.cells
    assert cell.status == "done"
    assert (cell.rows[-1]["session"], cell.rows[-1]["session_round"]) == (4, 5)
