from report.small_tables import rows_by_recipe
from thalweg.report import page
from thalweg.report.alarms import alarm_columns, alarm_extra
from thalweg.report.extras import extra_markdown, extra_rich


def found(raised, drifts, missed, delay):
    false = raised - (drifts - missed)
    return {
        "raised": raised,
        "drifts": drifts,
        "missed": missed,
        "false_alarms": false,
        "mean_delay": delay,
    }


def table(cells):
    return rows_by_recipe(alarm_columns(cells))


def test_alarms_are_compared_by_what_they_noticed_how_late_and_how_often_they_were_false(cell):
    cells = [
        cell("fedavg", 0),
        cell("ddm", 0, alarms=found(5, 4, 1, 2.0)),
        cell("ddm", 1, alarms=found(1, 4, 3, 6.0)),
        cell("deaf", 0, alarms=found(0, 4, 4, None)),
    ]
    shown = table(cells)
    assert shown["ddm"] == {
        "alarms": "3.0 ± 2.8",
        "noticed": "4 of 8",
        "late": "3.0",  # three drifts after 2 rounds, one after 6
        "false": "1.0 ± 1.4",
    }
    assert shown["deaf"] == {"alarms": "0.0", "noticed": "0 of 4", "late": "–", "false": "0.0"}
    assert set(shown["fedavg"].values()) == {"–"}, "nobody watched"


def test_where_nobody_knows_the_truth_alarms_are_counted_and_no_more(cell):
    assert table([cell("ddm", 0, alarms={"raised": 2})]) == {"ddm": {"alarms": "2.0"}}


def test_runs_that_are_not_done_do_not_count(cell):
    half = {"status": "interrupted", "rows": [{"round": 1}]}
    cells = [
        cell("ddm", 0, alarms=found(1, 1, 0, 0.0)),
        cell("ddm", 1, alarms=found(9, 1, 1, None), **half),
    ]
    assert table(cells)["ddm"]["alarms"] == "1.0"


def test_every_form_has_the_table_and_says_what_false_means(cell):
    cells = [cell("ddm", 0, alarms=found(5, 4, 1, 2.0))]
    for text in (page("t", cells), extra_markdown(alarm_extra(cells))):
        assert "noticed" in text
        assert "3 of 4" in text
        assert "still to be noticed" in text
    assert extra_rich(alarm_extra(cells)) is not None


def test_runs_without_alarms_have_no_such_table(comparison):
    assert alarm_columns(comparison) == []
    assert extra_markdown(alarm_extra(comparison)) == ""
