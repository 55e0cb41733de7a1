"""Studies are planned, run, read again and written as tables and pages."""

import csv
import io
import sys
from dataclasses import replace

import pytest

from thalweg.core.errors import ConfigError, DataError, UnknownName
from thalweg.core.published import Published
from thalweg.engine.cells import is_done
from thalweg.report.cells import Cell
from thalweg.report.study import best_cells, plan_study, read_study, reproduce, write_study
from thalweg.report.study_cells import check_data, unique_jobs
from thalweg.report.study_table import study_headline, study_markdown
from thalweg.scenarios.studies import Column, Row, Study

SMALL = ("rounds=2", "capacity=24", "local.passes=1")
TINY = Study(
    name="tiny",
    title="Tiny: <two> recipes",
    description="Made up.",
    rows=(Row("sfedpo"), Row("plain", "fedavg")),
    columns=(Column("digits-full", SMALL), Column("digits-partial", SMALL)),
    seeds=(4, 5),
    reference="plain",
    published={
        ("sfedpo", "digits-full"): Published(99.9, 0.01),
        ("plain", "digits-full"): Published(99.0, 90.0),
    },
)


def folders(plan, out):
    return [str(job.folder.relative_to(out)) for job in plan.jobs]


def test_jobs_are_ordered_by_seed(tmp_path):
    plan = plan_study(TINY, out=tmp_path)
    assert [cell.job.plan.seed for cell in plan.cells] == [4] * 4 + [5] * 4


def test_default_values_are_left_out_of_folder_names(tmp_path):
    sweep = replace(
        TINY,
        rows=(Row("usual", "sfedpo,memory.slope=0.15"), Row("other", "sfedpo,memory.slope=0.2")),
        columns=(Column("digits-full", ("capacity=100", "ticks=5")),),
        seeds=(4,),
        published={},
        reference="usual",
    )
    assert folders(plan_study(sweep, out=tmp_path), tmp_path) == [
        "digits-full/sfedpo/seed-4",
        "digits-full/sfedpo-memory.slope=0.2/seed-4",
    ]


def test_cells_with_equal_plans_share_one_run(tmp_path):
    twice = replace(TINY, rows=(Row("a", "sfedpo"), Row("b", "sfedpo")), published={})
    plan = plan_study(replace(twice, reference="a"), out=tmp_path)
    assert len(plan.cells) == 8
    assert len(plan.jobs) == 4


def test_recipe_override_of_a_column_is_in_the_recipe_folder(tmp_path):
    column = Column("digits-full", ("memory.budget=0.2",))
    rows = (Row("without", "sfedpo,memory=uniform-ratio"),)
    study = replace(TINY, rows=rows, columns=(column,), seeds=(4,), published={})
    (job,) = plan_study(study, out=tmp_path).jobs
    assert job.plan.recipe.memory.budget == 0.2
    assert job.folder.parent.name == "sfedpo-memory=uniform-ratio-memory.budget=0.2"
    assert job.command.startswith("thalweg run sfedpo --on digits-full --seed 4")


def test_quick_scale_has_a_tenth_of_the_rounds_and_one_seed():
    study = replace(
        TINY, columns=(Column("digits-full"), Column("digits-full", ("rounds=200",), "R"))
    )
    plan = plan_study(study, scale="quick")
    assert [cell.job.plan.scenario.rounds for cell in plan.cells] == [5, 5, 20, 20]
    assert {cell.job.plan.seed for cell in plan.cells} == {4}
    assert plan.folder.parts[:2] == ("runs", "reproduce-quick")


def test_additional_seeds_continue_the_seeds_of_the_study():
    assert plan_study(TINY, seeds=3).study.seeds == (4, 5, 6)
    assert plan_study(TINY, seeds=1).study.seeds == (4,)
    assert plan_study(TINY, seeds=[9, 2]).study.seeds == (9, 2)


def test_unknown_names_are_rejected_before_runs_start(tmp_path):
    with pytest.raises(UnknownName, match="sfedop"):
        plan_study(replace(TINY, rows=(Row("sfedop"),)), out=tmp_path)
    with pytest.raises(ConfigError, match="quick or paper"):
        plan_study(TINY, scale="huge")
    assert list(tmp_path.iterdir()) == []


def test_all_missing_datasets_are_reported_before_runs_start(tmp_path, monkeypatch):
    monkeypatch.setenv("THALWEG_OFFLINE", "1")
    monkeypatch.setattr("thalweg.data.idx_images.find", lambda *_: None)
    columns = (Column("fashion-mnist-full"), Column("mnist-full"), Column("digits-full", SMALL))
    study = replace(TINY, columns=columns, published={})
    with pytest.raises(DataError) as caught:
        reproduce(study, out=tmp_path)
    message = str(caught.value)
    assert "For fashion-mnist-full:\nFashion-MNIST is not on this machine" in message
    assert "For mnist-full:\nMNIST is not on this machine" in message
    assert "Ways to get it" in message
    assert list(tmp_path.iterdir()) == []
    check_data(unique_jobs(plan_study(study, only=["digits"], out=tmp_path).cells), None)


def test_study_is_run_once_and_written_as_page_markdown_and_csv(tmp_path):
    result = reproduce(TINY, workers=1, out=tmp_path)
    assert all(cell.is_done for cell in result.cells)
    updates = []
    again = reproduce(TINY, workers=1, out=tmp_path, watch=updates.append)
    assert updates == []
    assert [cell.rows for cell in again.cells] == [cell.rows for cell in result.cells]
    summaries = result.summaries()["digits-full"]
    assert summaries[0].is_far_from_published
    assert not summaries[1].is_far_from_published
    assert summaries[0].published_difference == pytest.approx(0.9)
    assert summaries[0].against == "plain"
    page = (tmp_path / "tiny/index.html").read_text()
    assert "Tiny: &lt;two&gt; recipes" in page
    assert "paper 99.90 ± 0.01, −" in page
    assert page.count("<svg") == 2
    assert "thalweg run fedavg --on digits-partial --seed 5" in page
    assert "<script" not in page
    assert "Not comparable" not in page
    assert "paper 99.90" in (tmp_path / "tiny/table.md").read_text()
    records = list(csv.DictReader(io.StringIO((tmp_path / "tiny/table.csv").read_text())))
    assert [(r["row"], r["column"]) for r in records[:2]] == [
        ("sfedpo", "digits-full"),
        ("plain", "digits-full"),
    ]
    assert records[0]["far_from_published"] == "true"
    assert records[0]["difference_to"] == "plain"


def test_diverging_run_is_reported_and_other_runs_continue(tmp_path):
    study = replace(
        TINY,
        rows=(*TINY.rows, Row("wild", "fedavg,local.lr=1e18")),
        columns=(Column("digits-full", ("rounds=8",)),),
        seeds=(4,),
        published={},
    )
    plan = plan_study(study, out=tmp_path)
    result = reproduce(study, workers=1, out=tmp_path)
    assert [cell.status for cell in result.cells] == ["done", "done", "failed"]
    shown = read_study(plan)  # read later, without running
    assert "not a finite number" in shown.cells[2].reason
    write_study(shown)
    for name in ("index.html", "table.md", "table.csv"):
        assert "not a finite number" in (tmp_path / "tiny" / name).read_text()


def test_truncated_result_files_are_not_finished_runs(tmp_path):
    plan = plan_study(TINY, only=["plain", "digits-full"], seeds=1, out=tmp_path)
    reproduce(TINY, only=["plain", "digits-full"], seeds=1, workers=1, out=tmp_path)
    (job,) = plan.jobs
    assert is_done(job)
    summary = job.folder / "summary.json"
    whole = summary.read_text()
    summary.write_text(whole[: len(whole) // 2])
    assert not is_done(job)
    assert read_study(plan).cells[0].status == "interrupted"
    summary.write_text(whole)
    metrics = job.folder / "metrics.jsonl"
    metrics.write_text(metrics.read_text()[:-9])
    cell = read_study(plan).cells[0]
    assert cell.status == "failed"
    assert "metrics.jsonl is damaged: its content does not match the manifest" in cell.reason


def test_study_without_runs_has_missing_cells(tmp_path):
    result = read_study(plan_study(TINY, scale="quick", out=tmp_path))
    files = write_study(result)
    page = files["page"].read_text()
    assert {cell.status for cell in result.cells} == {"missing"}
    assert "Not comparable with the paper" in page
    assert "not run yet" in page
    assert "Not comparable" in files["table"].read_text()


def test_headline_names_all_rows_with_the_most_best_means(tmp_path, cell):
    def headline(*accuracies):
        plan = plan_study(replace(TINY, seeds=(4,), published={}), out=tmp_path)
        cells = [
            cell(c.row.label, 4, accuracy, scenario=c.column.label)
            for c, accuracy in zip(plan.cells, accuracies, strict=True)
        ]
        return study_headline(replace(read_study(plan), cells=cells))

    assert headline(0.5, 0.4, 0.5, 0.4).startswith("sfedpo has the highest mean in 2 of 2 ")
    assert headline(0.5, 0.4, 0.4, 0.5).startswith(
        "sfedpo and plain each have the highest mean in 1"
    )


def test_balanced_accuracy_is_shown_where_it_differs(tmp_path, cell):
    plan = plan_study(TINY, only=["sfedpo", "full"], seeds=[4], out=tmp_path)
    rows = [{"round": 1, "accuracy": 0.75, "balanced_accuracy": 0.5}]
    (name,) = plan.cells
    result = replace(
        read_study(plan), cells=[cell("sfedpo", 4, rows=rows, scenario=name.column.label)]
    )
    files = write_study(result)
    assert "<small>balanced 50.00</small>" in files["page"].read_text()
    assert "; balanced 50.00)" in files["table"].read_text()
    assert "balanced: accuracy averaged" in files["table"].read_text()


@pytest.mark.parametrize(
    ("study", "words", "rows", "columns", "runs"),
    [
        ("sfedpo-table-8", ["cifar10-partial"], 2, 16, 96),
        ("sfedpo-table-8", ["sfedpo", "σ=0.01"], 1, 24, 72),
        ("sfedpo-table-2", ["fedprox", "full"], 1, 12, 36),
        ("sfedpo-table-6", ["resnet10", "flash"], 1, 6, 18),
        ("sfedpo-figure-2", ["without DDS"], 1, 5, 15),
        ("sfedpo-figure-3", ["a1", "without DDS", "fashion-mnist-full"], 6, 1, 18),
    ],
)
def test_only_selects_matching_rows_and_columns(study, words, rows, columns, runs, tmp_path):
    result = read_study(plan_study(study, only=words, out=tmp_path))
    assert len({cell.recipe for cell in result.cells}) == rows
    assert len({cell.scenario for cell in result.cells}) == columns
    assert len(result.cells) == runs
    assert list(tmp_path.iterdir()) == [], "reading a study writes nothing"


def cell(recipe, seed, validated, accuracy, status="done"):
    rows = [{"round": 1, "accuracy": accuracy, "validation_accuracy": validated}]
    reason = "" if status == "done" else "stopped"
    return Cell(recipe, "digits-full", seed, status, reason, rows, "thalweg run", 1.0)


BEST = replace(
    TINY,
    rows=(Row("a", "fedavg"), Row("b", "sfedpo"), Row("best", best_of=("a", "b"))),
    columns=(Column("digits-full"),),
    reference="a",
    published={},
)


def test_best_of_chooses_a_row_per_seed_by_validation_accuracy():
    cells = [
        cell("a", 4, validated=0.9, accuracy=0.1),
        cell("b", 4, validated=0.8, accuracy=0.7),
        cell("a", 5, validated=0.1, accuracy=0.9),
        cell("b", 5, validated=0.2, accuracy=0.3),
    ]
    best = best_cells(BEST, cells)
    assert [(each.recipe, each.seed) for each in best] == [("best", 4), ("best", 5)]
    assert [each.rows[-1]["accuracy"] for each in best] == [0.1, 0.3], "not by test accuracy"


def test_best_of_is_unfinished_until_all_candidates_are_done():
    cells = [cell("a", 4, 0.9, 0.1), cell("b", 4, 0.1, 0.2, status="interrupted")]
    (best,) = best_cells(BEST, cells)
    assert best.status == "interrupted"
    assert best.reason == "b, one of the candidates, is not done: stopped"


def test_best_of_row_has_no_own_runs(tmp_path):
    plan = plan_study(BEST, out=tmp_path)
    assert len(plan.jobs) == 4 == BEST.num_cells
    assert {each.status for each in read_study(plan).cells} == {"missing"}, "nothing has run"


def test_column_with_until_uses_an_earlier_round_of_the_same_runs(tmp_path):
    sets = (*SMALL, "evaluate_every=1")
    columns = (Column("digits-full", sets), Column("digits-full", sets, "half", until=1))
    study = replace(TINY, columns=columns, seeds=(4,), published={})
    result = reproduce(study, workers=1, out=tmp_path)
    assert len(plan_study(study, out=tmp_path).jobs) == 2
    ends = {(each.recipe, each.scenario): each.rows[-1]["round"] for each in result.cells}
    assert ends["plain", "digits-full"] == 2
    assert ends["plain", "digits-full half"] == 1


def test_quick_overrides_of_a_study_replace_the_default(tmp_path):
    columns = (Column("digits-full", ("rounds=50", "capacity=9")),)
    study = replace(TINY, columns=columns, quick=("rounds=7", "ticks=2"), published={})
    (job,) = plan_study(study, only=["plain"], scale="quick", out=tmp_path).jobs
    scenario = job.plan.scenario
    assert (scenario.rounds, scenario.ticks, scenario.capacity) == (7, 2, 9)
    (job, *_) = plan_study(study, out=tmp_path).jobs
    assert job.plan.scenario.rounds == 50


def test_study_can_use_client_accuracy(tmp_path):
    study = replace(TINY, metric="client_accuracy", spread="bound", seeds=(4,), published={})
    result = reproduce(study, workers=1, out=tmp_path, only=["digits-full"])
    row = result.cells[0].rows[-1]
    assert row["accuracy"] == row["client_accuracy"]
    text = study_markdown(result)
    assert "distributed like each client's, averaged over clients" in text
    assert "95 % bound of the mean" in text


def test_baseline_rows_are_run_and_missing_packages_are_reported(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "river", None)
    study = replace(
        TINY,
        rows=(
            Row("plain", "fedavg"),
            Row("most", "majority,pooled=true"),
            Row("tree", "river-tree"),
        ),
        columns=(Column("gaussian-mixture", ("rounds=3",)),),
        seeds=(4,),
        published={},
        metric="prequential_accuracy",
    )
    result = reproduce(study, workers=1, out=tmp_path)
    assert [cell.status for cell in result.cells] == ["done", "done", "failed"]
    assert "pip install 'thalweg[river]'" in result.cells[2].reason
    plain, most, _ = result.summaries()["gaussian-mixture"]
    assert plain.main_metric == most.main_metric == "prequential_accuracy"
    assert most.difference is not None
    assert most.difference.mean == pytest.approx(most.main.mean - plain.main.mean)
    page = (tmp_path / "tiny/index.html").read_text()
    assert "Prequential (test-then-train) accuracy" in page
    assert "before training on them" in page
    assert "thalweg run majority --on gaussian-mixture --seed 4 --set pooled=true" in page


def test_baseline_rows_run_in_worker_processes(tmp_path):
    study = replace(
        TINY,
        rows=(Row("plain", "majority"), Row("last", "no-change")),
        columns=(Column("gaussian-mixture", ("rounds=3",)),),
        published={},
        metric="prequential_accuracy",
    )
    result = reproduce(study, workers=2, out=tmp_path)
    assert all(cell.is_done for cell in result.cells)
    assert len(result.cells) == 4


def test_row_can_have_its_own_quick_overrides(tmp_path):
    rows = (Row("sfedpo", quick=("memory.budget=0.25",)), Row("plain", "fedavg"))
    study = replace(TINY, rows=rows, columns=TINY.columns[:1], quick=("rounds=7",), published={})
    mine, plain = plan_study(study, scale="quick", out=tmp_path).jobs
    assert (mine.plan.scenario.rounds, plain.plan.scenario.rounds) == (7, 7)
    assert mine.plan.recipe.memory.budget == 0.25
    assert plan_study(study, out=tmp_path).jobs[0].plan.recipe.memory.budget != 0.25


TASKS = replace(
    TINY,
    columns=(
        Column("digits-full", SMALL, "a, by labels", metric="task_accuracy", task="a"),
        Column(
            "digits-full",
            SMALL,
            "forgotten, by oracle",
            metric="forgetting",
            assignment="oracle",
        ),
    ),
    seeds=(4,),
    published={},
)  # fmt: skip


def test_each_format_of_a_task_table_states_the_assignment(tmp_path, cell):
    plan = plan_study(TASKS, out=tmp_path)
    cells = [cell(c.row.label, 4, 0.5, scenario=c.column.label) for c in plan.cells]
    result = replace(read_study(plan), cells=cells)
    files = write_study(result)
    for name in ("page", "table"):
        text = files[name].read_text()
        assert "a, by labels" in text
        assert "forgotten, by oracle" in text
        assert "was chosen with the task" in text
    lines = list(csv.DictReader(io.StringIO(files["csv"].read_text())))
    found = {(line["metric"], line["task"], line["assignment"]) for line in lines}
    assert found == {("task_accuracy", "a", "labels"), ("forgetting", "", "oracle")}


def test_lowest_forgetting_is_marked_as_best(tmp_path, cell):
    plan = plan_study(replace(TASKS, columns=TASKS.columns[1:]), out=tmp_path)
    labels = [(c.row.label, c.column.label) for c in plan.cells]
    cells = [
        cell(row, 4, forgotten, scenario=column)
        for (row, column), forgotten in zip(labels, (0.4, 0.1), strict=True)
    ]
    result = replace(read_study(plan), cells=cells)
    assert "**10.00**" in study_markdown(result)
    assert "highest mean" not in study_headline(result)


def test_row_that_is_run_once_has_the_first_seed_only(tmp_path):
    study = replace(TINY, rows=(Row("sfedpo"), Row("plain", "fedavg", once=True)))
    jobs = plan_study(study, out=tmp_path).jobs
    assert [(job.plan.recipe.name, job.plan.seed) for job in jobs] == [
        *[("sfedpo", 4), ("fedavg", 4)] * 2,
        *[("sfedpo", 5)] * 2,
    ]
    assert study.num_cells == len(jobs)


def test_study_of_a_regression_shows_errors_in_their_unit(tmp_path):
    study = replace(TINY, columns=TINY.columns[:1], metric="prequential_mae", published={})
    plan = plan_study(study, out=tmp_path)
    errors = {("sfedpo", 4): 12.5, ("sfedpo", 5): 11.5, ("plain", 4): 10.0, ("plain", 5): 11.0}
    cells = [
        Cell(label, "digits-full", seed, "done", "", [row], "thalweg run", 1.0)
        for (label, seed), error in errors.items()
        for row in [{"round": 1, "prequential_mae": error}]
    ]
    result = replace(read_study(plan), cells=cells)
    table = study_markdown(result)
    assert "| sfedpo | 12 ± 0.707 |" in table
    assert "| plain | **10.5 ± 0.707** |" in table
    assert "in %" not in table
    assert study_headline(result).startswith("plain has the lowest mean in the one scenario")


def test_page_draws_the_curves_that_a_study_names_once_for_the_same_runs(tmp_path):
    columns = (Column("digits-full", SMALL, "1", until=1), Column("digits-full", SMALL, "2"))
    study = replace(
        TINY, rows=TINY.rows[:1], columns=columns, seeds=(4,), reference="sfedpo", published={}
    )
    reproduce(replace(study, curves=("loss",)), workers=1, out=tmp_path)
    page = (tmp_path / "tiny/index.html").read_text()
    assert page.count("Further metrics over rounds</h3>") == 1
    assert "Mean training loss of the clients" in page.partition("scenario-2")[2]
    with pytest.raises(UnknownName, match="los"):
        replace(study, curves=("los",))
