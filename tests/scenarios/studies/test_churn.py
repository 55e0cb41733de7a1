import pytest

from thalweg.local import Continuous, Moon, PolynomialDecay, Proximal, Scaffold
from thalweg.report.study import plan_study, reproduce
from thalweg.scenarios.studies import STUDIES
from thalweg.scenarios.studies.churn import TABLES, table
from thalweg.sessions import Average, Reset, WarmStart

NAMES = [each.name for each in TABLES]
MNIST, FASHION, NEWS, MNIST_100, FASHION_100, NEWS_100, CIFAR = NAMES


def published(name, row, setting):
    (scenario,) = {column.scenario for column in STUDIES[name].columns}
    number = STUDIES[name].published[row, f"{scenario} {setting}"]
    return number.mean, number.spread


def plans_of(name, tmp_path):
    cells = plan_study(STUDIES[name], seeds=[0], out=tmp_path).cells
    return {cell.row.label: cell.job.plan for cell in cells}


def test_churn_studies_hold_the_numbers_of_the_paper():
    first, second = "overlap 0.0 dir 0.3 T1", "overlap 0.0 dir 0.3 T2"
    assert published(MNIST, "fedavg proposed", first) == (90.97, 0.16)
    assert published(MNIST, "scaffold continuous", second) == (80.35, 3.54)
    assert published(MNIST, "fedacg average", second) == (90.49, 0.18)
    assert published(FASHION, "fedacg previous", "overlap 0.2 dir 0.3 T1") == (67.71, 1.23)
    assert published(NEWS, "fedprox previous", "overlap 0.8 dir 0.7 T2") == (52.51, 1.26)
    assert published(MNIST_100, "moon proposed", first) == (92.04, 0.24)
    assert published(FASHION_100, "fedacg average", "overlap 0.2 dir 0.7 T2") == (81.82, 0.25)
    assert published(NEWS_100, "scaffold average", second) == (13.85, 0.25)
    assert published(CIFAR, "fedavg average", first) == (74.63, 1.67)


def test_churn_studies_have_no_numbers_missing_from_the_paper():
    with pytest.raises(KeyError):
        published(FASHION, "fedavg proposed", "overlap 0.2 dir 0.7 T1")
    with pytest.raises(KeyError):
        published(MNIST, "fedavg proposed", "overlap 0.0 dir 0.3 T1 ten rounds")
    assert not any("true-scaffold" in row for row, _ in STUDIES[MNIST].published)
    assert not any("moon" in row for row, _ in STUDIES[MNIST].published)
    assert not any("fedavg" in row for row, _ in STUDIES[MNIST_100].published)


@pytest.mark.parametrize(
    ("name", "count"),
    [(MNIST, 104), (FASHION, 104), (NEWS, 96), (MNIST_100, 120), (FASHION_100, 128)],
)
def test_churn_studies_have_all_numbers_of_their_tables(name, count):
    assert len(STUDIES[name].published) == count


@pytest.mark.parametrize("name", NAMES)
def test_published_churn_numbers_refer_to_existing_cells(name):
    study = STUDIES[name]
    for row, column in study.published:
        assert row in study.row_labels
        assert column in study.column_labels


@pytest.mark.parametrize("name", NAMES)
def test_each_transition_has_both_metrics(name):
    study = STUDIES[name]
    metrics = {column.label: study.metric_of(column) for column in study.columns}
    for label, metric in metrics.items():
        if metric == "crossing_accuracy":
            assert metrics[f"{label} ten rounds"] == "transition_accuracy"
    assert list(metrics.values()).count("crossing_accuracy") == len(metrics) / 2


@pytest.mark.parametrize("name", NAMES)
def test_churn_transitions_lie_within_the_run(name, tmp_path):
    sessions = {"T1": 4, "T2": 6} if "-100-" in name else {"T1": 3, "T2": 4}
    for cell in plan_study(STUDIES[name], only=["fedprox"], seeds=[0], out=tmp_path).cells:
        scenario = cell.job.plan.scenario
        number = scenario.world.num_clients
        starts = scenario.sessions.timetable(number, scenario.rounds, 0).starts
        transition = cell.column.label.removesuffix(" ten rounds").rpartition(" ")[2]
        assert sessions[transition] == cell.column.session
        assert len(starts) == sessions["T2"] + 1
        assert starts[1] == scenario.local.decay.rounds == scenario.evaluate_every
        assert scenario.rounds - starts[-1] == scenario.evaluate_first == 10
        assert number == (200 if "-100-" in name else 20 if name == CIFAR else 40)


@pytest.mark.parametrize("name", NAMES)
def test_all_churn_methods_start_session_1_from_the_initial_model(name, tmp_path):
    kinds = {"proposed": WarmStart, "average": Average, "previous": Reset, "continuous": Reset}
    for label, plan in plans_of(name, tmp_path).items():
        session_start = plan.recipe.session_start
        assert type(session_start) is kinds[label.rpartition(" ")[2]]
        if isinstance(session_start, Reset):
            assert session_start.session == 1
        else:
            assert (session_start.first_start, session_start.pilot_sessions) == ("random", 1)


def test_churn_host_methods_have_the_settings_of_the_paper(tmp_path):
    plans = plans_of(MNIST, tmp_path)
    assert plans["fedprox proposed"].recipe.objective == Proximal(1.0)
    assert plans["moon average"].recipe.objective == Moon(strength=1.0, temperature=1.0)
    assert plans["fedacg previous"].recipe.objective == Proximal(0.01)
    assert plans["fedacg previous"].recipe.server.momentum == 0.85
    assert plans["scaffold proposed"].recipe.objective == Scaffold("as_released")
    assert plans["true-scaffold proposed"].recipe.objective == Scaffold()
    assert plans["fedavg proposed"].local.lr == plans["true-scaffold previous"].local.lr == 0.001
    many = plans_of(MNIST_100, tmp_path)
    assert many["fedacg proposed"].recipe.objective == Proximal(0.1)
    assert many["fedacg proposed"].recipe.server.momentum == 0.5
    assert (many["moon previous"].local.steps, many["moon previous"].local.passes) == (None, 1)


@pytest.mark.parametrize(
    ("name", "lr", "floor", "released"),
    [
        (MNIST, 0.001, 0.6, (0.03, 0.9)),
        (FASHION, 0.003, 0.3, (0.03, 0.9)),
        (NEWS, 0.005, 0.2, (0.05, 0.2)),
        (MNIST_100, 0.001, 0.6, (0.03, 0.9)),
        (FASHION_100, 0.003, 0.3, (0.03, 0.9)),
        (NEWS_100, 0.005, 0.2, (0.05, 0.2)),
    ],
)
def test_churn_learning_rates_are_the_released_ones(name, lr, floor, released, tmp_path):
    for label, plan in plans_of(name, tmp_path).items():
        host, start = label.split()
        local = plan.local
        assert (local.lr, local.decay.floor) == (released if host == "scaffold" else (lr, floor))
        if host == "scaffold" and start != "continuous":
            server = plan.recipe.server
            assert server.lr == released[0], "the server multiplies by the clients' learning rate"
            assert (
                server.decay == local.decay == PolynomialDecay(0.9, released[1], local.decay.rounds)
            )
        elif start != "continuous":
            assert getattr(plan.recipe.server, "decay", None) is None


def test_fedacg_uses_a_smaller_learning_rate_only_on_cifar10(tmp_path):
    for name in NAMES:
        cells = plan_study(STUDIES[name], only=["previous"], seeds=[0], out=tmp_path).cells
        lr = {cell.row.label: cell.job.plan.local.lr for cell in cells}
        assert lr["fedacg previous"] == (0.01 if name == CIFAR else lr["fedavg previous"])


def test_continuous_rows_share_runs_between_hosts_with_equal_learning_rates(tmp_path):
    cells = plan_study(STUDIES[MNIST], only=["continuous"], seeds=[0], out=tmp_path).cells
    assert all(cell.job.plan.recipe.objective == Continuous(uniform_session=1) for cell in cells)
    folders = {cell.row.label: cell.job.folder for cell in cells}
    assert folders["fedavg continuous"] == folders["fedprox continuous"]
    assert folders["fedavg continuous"] == folders["fedacg continuous"]
    assert folders["fedavg continuous"] != folders["scaffold continuous"]


def test_warm_start_scale_is_larger_for_text_than_for_images(tmp_path):
    plans = [plans_of(name, tmp_path)["fedavg proposed"] for name in NAMES]
    assert [plan.recipe.session_start.scale for plan in plans] == [10, 10, 800, 10, 10, 800, 10]


def test_transitions_and_metrics_share_runs_and_rows_are_compared_with_their_host(tmp_path):
    study = STUDIES[MNIST]
    plan = plan_study(study, out=tmp_path)
    # 6 hosts with 3 starts, and two different Continuous; 4 settings and 3 seeds
    assert len(plan.jobs) == (6 * 3 + 2) * 4 * 3
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
    assert [cell.status for cell in result.cells] == ["done"] * 8
    assert {cell.scenario.removesuffix(" ten rounds")[-2:] for cell in result.cells} == {"T1", "T2"}
    assert all(cell.rows[-1]["accuracy"] is not None for cell in result.cells)
