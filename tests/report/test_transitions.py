"""The table of transitions between sessions."""

from report.small_tables import rows_by_recipe
from thalweg.evaluation import Transition
from thalweg.report import extra_markdown, extra_rich, page, transition_table
from thalweg.report.transitions import (
    MAX_LINES,
    MAX_SESSIONS,
    transition_columns,
    transition_lines,
)

ONE = Transition(1, 50, 51, 0.9, 0.42, 10, 12, None, 0.4)


def sessions(*accuracies, probe_rounds=0):
    """Return rows with one round per session."""
    return [
        {
            "round": number + 1,
            "session": number,
            "session_round": 1,
            "session_accuracy": accuracy,
            "accuracy": accuracy,
            "probe_rounds": probe_rounds if number else 0,
        }
        for number, accuracy in enumerate(accuracies)
    ]


def table(cells):
    return rows_by_recipe(transition_columns(cells))


def test_caption_mentions_sessions_that_were_not_evaluated(cell):
    note = "Sessions without a column were not evaluated"
    rows = sessions(0.9, 0.2, 0.6, 0.5)
    assert note not in transition_table([cell(rows=rows)]).caption
    del rows[2]["session_accuracy"]
    table_with_gap = transition_table([cell(rows=rows)])
    assert [column.heading for column in table_with_gap.columns[1:3]] == ["session 1", "session 3"]
    assert note in table_with_gap.caption


def test_sessions_after_the_first_have_a_mean_over_seeds(cell):
    found = table(
        [
            cell("plain", 0, rows=sessions(0.9, 0.2, 0.6)),
            cell("plain", 1, rows=sessions(0.9, 0.4, 0.6)),
            cell("warm", 0, rows=sessions(0.9, 0.9, 0.9, probe_rounds=1)),
        ]
    )
    assert found["plain"] == {
        "session 1": "30.00 ± 14.14",
        "session 2": "60.00 ± 0.00",
        "mean of all": "45.00 ± 7.07",
        "recovered": "2 of 4",
        "after": "1.0",
        "rounds": "2",
    }
    assert found["warm"]["rounds"] == "2 + 2"
    assert found["warm"]["recovered"] == "2 of 2"


def test_unfinished_runs_are_left_out_of_transitions(cell):
    half = cell("plain", 1, status="interrupted", rows=sessions(0.9, 0.4))
    found = table([cell("plain", 0, rows=sessions(0.9, 0.2)), half, cell("none", 0)])
    assert found["plain"]["session 1"] == "20.00"
    assert set(found["none"].values()) == {"–"}


def test_stayers_and_newcomers_have_columns_if_measured(cell):
    rows = sessions(0.9, 0.5)
    rows[1] |= {"stayers_accuracy": 0.75, "newcomers_accuracy": 0.25}
    found = table([cell(rows=rows)])["sfedpo"]
    assert (found["stayers"], found["newcomers"]) == ("75.00", "25.00")


def test_many_sessions_have_limited_columns_and_a_mean_of_all(cell):
    rows = sessions(1.0, *[0.0] * 10, *[1.0] * 10)
    found = table([cell(rows=rows)])["sfedpo"]
    assert sum(heading.startswith("session") for heading in found) == MAX_SESSIONS
    assert found["mean of all"] == "50.00"


def test_runs_without_sessions_have_no_transition_table(comparison):
    assert transition_columns(comparison) == []
    assert extra_markdown(transition_table(comparison)) == ""
    assert extra_rich(transition_table(comparison)) is None
    assert "Transitions" not in page("t", comparison)


def test_page_and_markdown_have_the_transition_table(cell):
    cells = [cell("a|b", rows=sessions(0.9, 0.25))]
    shown = page("t", cells)
    assert "<h2>Transitions</h2>" in shown
    assert "<td>25.00</td>" in shown
    markdown = extra_markdown(transition_table(cells))
    assert "| recipe | session 1 |" in markdown
    assert r"| a\|b | 25.00 |" in markdown


def test_transition_lines_describe_recovery_and_missing_values():
    short = ONE._replace(rounds=3, rounds_averaged=3, rounds_to_recover=None)
    some = ONE._replace(rounds_averaged=2)
    nothing = ONE._replace(transition_accuracy=None, rounds_averaged=0)
    fresh = ONE._replace(accuracy_before=None, rounds_to_recover=None, rounds=1, rounds_averaged=1)
    assert transition_lines([short, some, nothing, fresh]) == [
        "session 1: 0.4200 over its first 3 rounds, 0.9000 before, not recovered in 3 rounds",
        "session 1: 0.4200 over 2 of its first 10 rounds, 0.9000 before, recovered in round 12",
        "session 1: not evaluated in its first 10 rounds",
        "session 1: 0.4200 over its only round",
    ]


def test_only_the_last_transitions_are_printed():
    many = [ONE._replace(session=number) for number in range(1, MAX_LINES + 4)]
    lines = transition_lines(many)
    assert lines[0] == "... and 3 earlier ones in summary.json"
    assert lines[-1].startswith(f"session {MAX_LINES + 3}:")
