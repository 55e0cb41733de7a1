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


def test_a_word_that_is_a_label_means_that_row_alone():
    part = restrict_study(study(), ["is"])  # "mnist" has it too, as letters
    assert part.row_labels == ["is"]
    assert len(part.columns) == 3


def test_who_is_the_best_of_some_brings_them_along():
    rows = (Row("is"), Row("sfedpo"), Row("best", best_of=("is", "sfedpo")))
    assert restrict_study(study(rows=rows), ["best"]).row_labels == ["is", "sfedpo", "best"]
    assert restrict_study(study(rows=rows), ["sfedpo"]).row_labels == ["sfedpo"]
    with pytest.raises(ConfigError, match="best of"):
        study(rows=(Row("sfedpo"), Row("best", best_of=("ode",))))


def test_words_restrict_rows_and_columns_by_their_letters():
    part = restrict_study(study(), ["fedprox", "digits"])
    assert part.row_labels == ["fedprox+sfedpo"]
    assert restrict_study(study(), ["N="]).column_labels == ["digits-full N=1"]


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_every_label_can_be_asked_for_alone_and_beside_others(study):
    labels = [*study.row_labels, *study.column_labels]
    assert split_words(labels, study) == labels
    assert split_words([",".join(labels)], study) == labels
    assert split_words(["is, ode ,,", "x"], study) == ["is", "ode", "x"]


def test_a_word_nobody_has_is_refused_with_the_nearest():
    with pytest.raises(UnknownName, match="Did you mean 'mnist-full'"):
        restrict_study(study(), ["mnist-ful1"])


def test_rows_and_columns_without_common_cells_are_refused():
    columns = (Column("mnist-full", rows=("is",)), Column("digits-full"))
    with pytest.raises(ConfigError, match="no cells of s are left"):
        restrict_study(study(columns=columns), ["sfedpo", "mnist"])


def test_on_other_data_the_papers_numbers_stay_behind():
    moved = replace_data(STUDIES["sfedpo-table-5"], "digits")
    assert moved.name == "sfedpo-table-5-digits"
    assert moved.column_labels[0] == "digits-full N=10"
    assert moved.published == {}
    assert len(replace_data(STUDIES["sfedpo-table-1"], "digits").columns) == 2


def test_a_row_is_paired_with_its_own_partner_or_the_reference():
    mine = study()
    assert [mine.against(row) for row in mine.rows] == ["sfedpo", None, "is"]
    assert mine.num_cells == 12


def test_columns_that_look_at_the_same_runs_are_counted_once():
    twice = (Column("mnist-full"), Column("mnist-full", note="early", until=3))
    assert study(columns=twice).num_cells == study(columns=twice[:1]).num_cells == 6
    other = (*twice, Column("mnist-full", ("capacity=9",), "small"))
    assert study(columns=other).num_cells == 12


def test_a_column_may_show_something_else_than_the_study():
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


def test_a_study_of_clients_that_come_and_go_moves_to_other_data():
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
def test_a_study_that_makes_no_sense_is_refused(changes, said):
    with pytest.raises(ConfigError, match=said):
        study(**changes)


def test_a_study_of_your_own_is_named_by_its_file(tmp_path):
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


def test_who_finds_mixtures_by_labels_must_say_so():
    columns = (Column("digits-full", metric="task_accuracy", assignment="labels"),)
    with pytest.raises(ConfigError, match="the note of the column must say so"):
        study(columns=columns)
    columns = (Column("digits-full", (), "by labels", metric="forgetting", assignment="labels"),)
    assert study(columns=columns).columns == columns


def test_a_study_of_drift_moves_to_the_drift_of_other_data():
    moved = replace_data(study(columns=(Column("drift-cifar10", ("rounds=6",)),)), "digits")
    assert moved.columns == (Column("drift-digits", ("rounds=6",)),)
