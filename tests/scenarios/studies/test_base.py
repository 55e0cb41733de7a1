import pytest

from thalweg.core.errors import ConfigError, UnknownName
from thalweg.scenarios.studies import (
    STUDIES,
    Column,
    Row,
    Study,
    find_study,
    replace_data,
    restrict_study,
    split_words,
)


def study(**changes):
    fields = {
        "name": "s",
        "title": "t",
        "description": "",
        "rows": (Row("is"), Row("sfedpo"), Row("fedprox+sfedpo", against="is")),
        "columns": (Column("mnist-full"), Column("digits-full"), Column("digits-full", (), "N=1")),
        "seeds": (4, 5),
        "reference": "sfedpo",
    }
    return Study(**(fields | changes))


def test_exact_label_selects_only_that_row():
    part = restrict_study(study(), ["is"])  # "mnist" has it too, as letters
    assert part.row_labels == ["is"]
    assert len(part.columns) == 3


def test_best_of_row_selects_its_candidates():
    rows = (Row("is"), Row("sfedpo"), Row("best", best_of=("is", "sfedpo")))
    assert restrict_study(study(rows=rows), ["best"]).row_labels == ["is", "sfedpo", "best"]
    assert restrict_study(study(rows=rows), ["sfedpo"]).row_labels == ["sfedpo"]
    with pytest.raises(ConfigError, match="best of"):
        study(rows=(Row("sfedpo"), Row("best", best_of=("ode",))))


def test_words_select_rows_and_columns_by_substring():
    part = restrict_study(study(), ["fedprox", "digits"])
    assert part.row_labels == ["fedprox+sfedpo"]
    assert restrict_study(study(), ["N="]).column_labels == ["digits-full N=1"]


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_every_label_can_be_selected_alone_or_in_a_list(study):
    labels = [*study.row_labels, *study.column_labels]
    assert split_words(labels, study) == labels
    assert split_words([",".join(labels)], study) == labels
    assert split_words(["is, ode ,,", "x"], study) == ["is", "ode", "x"]


def test_unknown_word_is_rejected_with_the_nearest_label():
    with pytest.raises(UnknownName, match="Did you mean 'mnist-full'"):
        restrict_study(study(), ["mnist-ful1"])


def test_selection_without_common_cells_is_rejected():
    columns = (Column("mnist-full", rows=("is",)), Column("digits-full"))
    with pytest.raises(ConfigError, match="no cells of s are left"):
        restrict_study(study(columns=columns), ["sfedpo", "mnist"])


def test_study_on_other_data_drops_published_numbers():
    moved = replace_data(STUDIES["sfedpo-table-5"], "digits")
    assert moved.name == "sfedpo-table-5-digits"
    assert moved.column_labels[0] == "digits-full N=10"
    assert moved.published == {}
    assert len(moved.columns) == 6, "columns of two data sets become one"
    assert len(replace_data(STUDIES["sfedpo-table-1"], "digits").columns) == 6


def test_row_is_compared_with_its_partner_or_the_reference():
    mine = study()
    assert [mine.against(row) for row in mine.rows] == ["sfedpo", None, "is"]
    assert mine.num_cells == 12


def test_columns_with_the_same_runs_are_counted_once():
    twice = (Column("mnist-full"), Column("mnist-full", note="early", until=3))
    assert study(columns=twice).num_cells == study(columns=twice[:1]).num_cells == 6
    other = (*twice, Column("mnist-full", ("capacity=9",), "small"))
    assert study(columns=other).num_cells == 12


def test_column_can_override_the_metric_of_the_study():
    mine = study(
        columns=(
            Column("mnist-full"),
            Column("mnist-full", (), "T1", metric="transition_accuracy", session=1),
        )
    )
    assert [mine.metric_of(column) for column in mine.columns] == [
        "accuracy",
        "transition_accuracy",
    ]


def test_churn_study_can_be_moved_to_other_data():
    moved = replace_data(study(columns=(Column("churn-mnist"),)), "digits")
    assert moved.column_labels == ["churn-digits"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": ()}, "at least one seed"),
        ({"rows": (Row("a"), Row("a"))}, "more than one row has the label a"),
        ({"name": "../x"}, "the name of a study may contain"),
        ({"metric": "transition_accuracy"}, "set the session of the column"),
        (
            {
                "rows": (Row("is"), Row("best", best_of=("is",))),
                "metric": "session_accuracy",
            },
            "chosen by validation accuracy, which session_accuracy",
        ),
    ],
)
def test_invalid_studies_are_rejected(changes, said):
    with pytest.raises(ConfigError, match=said):
        study(**changes)


def test_user_study_can_be_loaded_from_a_file(tmp_path):
    file = tmp_path / "own_study.py"
    file.write_text(
        "from thalweg.scenarios.studies import Column, Row, Study\n"
        "MINE = Study('mine', '', '', (Row('fedavg'),), (Column('digits-full'),), (0,), 'fedavg')\n"
    )
    assert find_study(f"{file}:MINE").name == "mine"
    with pytest.raises(ConfigError, match="expected a Study"):
        find_study(f"{file}:NOBODY")
    with pytest.raises(UnknownName, match="Did you mean 'sfedpo-table-1'"):
        find_study("sfedpo-tabel-1")


def test_column_with_assignment_by_labels_needs_a_note():
    columns = (Column("digits-full", metric="task_accuracy", assignment="labels"),)
    with pytest.raises(ConfigError, match="the note of the column must state it"):
        study(columns=columns)
    columns = (Column("digits-full", (), "by labels", metric="forgetting", assignment="labels"),)
    assert study(columns=columns).columns == columns


def test_drift_study_can_be_moved_to_other_data():
    moved = replace_data(study(columns=(Column("drift-cifar10", ("rounds=6",)),)), "digits")
    assert moved.columns == (Column("drift-digits", ("rounds=6",)),)


def test_rounds_can_be_left_out_of_a_mean_over_rounds_only():
    columns = (Column("elec2", after=5),)
    assert study(columns=columns, metric="prequential_accuracy").columns == columns
    with pytest.raises(ConfigError, match=r"got accuracy\. Remove 'after'"):
        study(columns=columns)


def test_cells_may_have_their_own_recipe_or_be_left_out():
    rows = (Row("fedavg"), Row("warmstart"))
    columns = (Column("digits-full"), Column("churn-digits"))
    recipes = {("fedavg", "churn-digits"): "fedavg,memory=fifo"}
    left_out = {("warmstart", "digits-full"): "no sessions"}
    made = study(rows=rows, columns=columns, reference="fedavg", recipes=recipes, left_out=left_out)
    first, second = columns
    assert made.rows_of(first) == [rows[0]]
    assert made.rows_of(second) == list(rows)
    assert [made.recipe_of(rows[0], column) for column in columns] == [
        "fedavg",
        "fedavg,memory=fifo",
    ]
    assert made.num_cells == 3 * len(made.seeds)
    assert (made.mark_of("warmstart", "digits-full"), made.mark_of("fedavg", "digits-full")) == (
        "a",
        "",
    )
    assert made.describe_left_out() == " Empty cells: a: no sessions."
    part = restrict_study(made, ["fedavg"])
    assert (part.recipes, part.left_out) == (recipes, {})


def test_cells_that_do_not_exist_are_rejected():
    with pytest.raises(ConfigError, match="there is no cell nobody on digits-full"):
        study(columns=(Column("digits-full"),), left_out={("nobody", "digits-full"): "no"})
