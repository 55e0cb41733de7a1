import pytest

from thalweg.local import Continuous, Proximal, Scaffold
from thalweg.report.study import plan_study, reproduce
from thalweg.scenarios.studies import STUDIES
from thalweg.scenarios.studies.churn import TABLES, table
from thalweg.sessions import Average, Reset, WarmStart

NAMES = [f"churn-{each.data}-table" for each in TABLES]


def published(name, row, setting):
    data = name.removeprefix("churn-").removesuffix("-table")
    number = STUDIES[name].published[row, f"churn-{data} {setting}"]
    return number.mean, number.spread


def test_churn_studies_hold_the_numbers_of_the_paper():
    mnist, fashion, news, cifar = NAMES
    first, second = "overlap 0.0 dir 0.3 T1", "overlap 0.0 dir 0.3 T2"
    assert published(mnist, "fedavg proposed", first) == (90.97, 0.16)
    assert published(mnist, "scaffold continuous", second) == (80.35, 3.54)
    assert published(mnist, "fedacg average", second) == (90.49, 0.18)
    assert published(news, "fedprox previous", "overlap 0.6 dir 0.7 T2") == (52.51, 1.26)
    assert published(cifar, "fedavg average", first) == (74.63, 1.67)
    assert published(fashion, "fedacg previous", "overlap 0.2 dir 0.3 T1") == (67.71, 1.23)


def test_churn_studies_have_no_numbers_missing_from_the_paper():
    with pytest.raises(KeyError):
        published(NAMES[1], "fedavg proposed", "overlap 0.2 dir 0.7 T1")
    assert not any("true-scaffold" in row for row, _ in STUDIES[NAMES[0]].published)


@pytest.mark.parametrize("name", NAMES)
def test_published_churn_numbers_refer_to_existing_cells(name):
    study = STUDIES[name]
    for row, column in study.published:
        assert row in study.row_labels
        assert column in study.column_labels


@pytest.mark.parametrize("name", NAMES)
def test_churn_transitions_lie_within_the_run(name, tmp_path):
    for cell in plan_study(STUDIES[name], only=["fedavg"], seeds=[0], out=tmp_path).cells:
        scenario = cell.job.plan.scenario
        starts = scenario.sessions.timetable(40, scenario.rounds, 0).starts
        assert {"T1": 3, "T2": 4}[cell.column.label.rpartition(" ")[2]] == cell.column.session
        assert len(starts) == 5
        assert starts[1] == scenario.local.decay.rounds
        assert scenario.rounds - starts[4] == scenario.evaluate_first == 10


@pytest.mark.parametrize("name", NAMES)
def test_all_churn_methods_start_session_1_from_the_initial_model(name, tmp_path):
    kinds = {"proposed": WarmStart, "average": Average, "previous": Reset, "continuous": Reset}
    for cell in plan_study(STUDIES[name], seeds=[0], out=tmp_path).cells:
        session_start = cell.job.plan.recipe.session_start
        assert type(session_start) is kinds[cell.row.label.rpartition(" ")[2]]
        if isinstance(session_start, Reset):
            assert session_start.session == 1
        else:
            assert (session_start.first_start, session_start.pilot_sessions) == ("random", 1)


def test_churn_host_methods_have_the_settings_of_the_paper(tmp_path):
    cells = plan_study(STUDIES[NAMES[0]], seeds=[0], out=tmp_path).cells
    plans = {cell.row.label: cell.job.plan for cell in cells}
    assert plans["fedprox proposed"].recipe.objective == Proximal(1.0)
    assert plans["fedacg previous"].recipe.objective == Proximal(0.01)
    assert plans["fedacg previous"].recipe.server.momentum == 0.85
    assert plans["scaffold proposed"].recipe.objective == Scaffold("as_released")
    assert plans["true-scaffold proposed"].recipe.objective == Scaffold()
    assert plans["fedavg proposed"].local.lr == plans["true-scaffold previous"].local.lr == 0.001
    for label in ("proposed", "previous", "average", "continuous"):
        plan = plans[f"scaffold {label}"]
        assert (plan.local.lr, plan.local.decay.floor) == (0.03, 0.9)
        assert getattr(plan.recipe.server, "lr", 1.0) == (1.0 if label == "continuous" else 0.03)


def test_fedacg_uses_a_smaller_learning_rate_only_on_cifar10(tmp_path):
    for name in NAMES:
        cells = plan_study(STUDIES[name], only=["previous"], seeds=[0], out=tmp_path).cells
        lr = {cell.row.label: cell.job.plan.local.lr for cell in cells}
        assert lr["fedacg previous"] == (0.01 if "cifar10" in name else lr["fedavg previous"])


def test_continuous_rows_share_runs_between_hosts_with_equal_learning_rates(tmp_path):
    cells = plan_study(STUDIES[NAMES[0]], only=["continuous"], seeds=[0], out=tmp_path).cells
    assert all(cell.job.plan.recipe.objective == Continuous() for cell in cells)
    folders = {cell.row.label: cell.job.folder for cell in cells}
    assert folders["fedavg continuous"] == folders["fedprox continuous"]
    assert folders["fedavg continuous"] == folders["fedacg continuous"]
    assert folders["fedavg continuous"] != folders["scaffold continuous"]


def test_warm_start_scale_is_larger_for_text_than_for_images():
    plans = {
        name: plan_study(STUDIES[name], only=["fedavg proposed"], seeds=[0]).jobs[0].plan
        for name in NAMES
    }
    assert [plan.recipe.session_start.scale for plan in plans.values()] == [10, 10, 800, 10]


def test_both_transitions_share_runs_and_rows_are_compared_with_their_host(tmp_path):
    study = STUDIES[NAMES[0]]
    plan = plan_study(study, out=tmp_path)
    assert len(plan.jobs) == study.num_cells == 204
    for row in study.rows:
        assert row.against == f"{row.label.rpartition(' ')[0]} previous"


def test_quick_churn_study_covers_all_sessions(tmp_path):
    study = table(TABLES[0]._replace(data="digits", numbers=""))
    result = reproduce(
        study,
        only=["fedavg proposed", "fedavg previous", "overlap 0.0 dir 0.3"],
        scale="quick",
        workers=1,
        out=tmp_path,
    )
    assert [cell.status for cell in result.cells] == ["done"] * 4
    assert {cell.scenario.rpartition(" ")[2] for cell in result.cells} == {"T1", "T2"}
    assert all(cell.rows[-1]["accuracy"] is not None for cell in result.cells)
