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
    """One round per session."""
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


def test_every_session_from_the_second_on_has_a_mean_over_seeds(cell):
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


def test_unfinished_runs_are_not_in_the_numbers(cell):
    half = cell("plain", 1, status="interrupted", rows=sessions(0.9, 0.4))
    found = table([cell("plain", 0, rows=sessions(0.9, 0.2)), half, cell("none", 0)])
    assert found["plain"]["session 1"] == "20.00"
    assert set(found["none"].values()) == {"–"}


def test_stayers_stand_beside_newcomers_where_there_are_any(cell):
    rows = sessions(0.9, 0.5)
    rows[1] |= {"stayers_accuracy": 0.75, "newcomers_accuracy": 0.25}
    found = table([cell(rows=rows)])["sfedpo"]
    assert (found["stayers"], found["newcomers"]) == ("75.00", "25.00")


def test_of_very_many_sessions_the_first_have_columns_and_all_are_in_the_mean(cell):
    rows = sessions(1.0, *[0.0] * 10, *[1.0] * 10)
    found = table([cell(rows=rows)])["sfedpo"]
    assert sum(heading.startswith("session") for heading in found) == MAX_SESSIONS
    assert found["mean of all"] == "50.00"


def test_runs_without_sessions_say_nothing_of_them(comparison):
    assert transition_columns(comparison) == []
    assert extra_markdown(transition_table(comparison)) == ""
    assert extra_rich(transition_table(comparison)) is None
    assert "Transitions" not in page("t", comparison)


def test_the_page_and_the_markdown_have_the_table(cell):
    cells = [cell("a|b", rows=sessions(0.9, 0.25))]
    shown = page("t", cells)
    assert "<h2>Transitions</h2>" in shown
    assert "<td>25.00</td>" in shown
    markdown = extra_markdown(transition_table(cells))
    assert "| recipe | session 1 |" in markdown
    assert r"| a\|b | 25.00 |" in markdown


def test_a_run_says_in_lines_what_is_special_about_a_transition():
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


def test_of_very_many_transitions_a_run_tells_the_last():
    many = [ONE._replace(session=number) for number in range(1, MAX_LINES + 4)]
    lines = transition_lines(many)
    assert lines[0] == "... and 3 earlier ones in summary.json"
    assert lines[-1].startswith(f"session {MAX_LINES + 3}:")
