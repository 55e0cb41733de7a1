from thalweg.core.decisions import make_decision
from thalweg.report.cells import Cell
from thalweg.report.explain import explain_rows
from thalweg.report.html_page import MAX_DECISIONS, decisions_section

REASON = "the error of 14 clients increased"


def cell(rows, recipe="auto"):
    return Cell(recipe, "digits-full", 0, "done", "", rows, "thalweg run", 1.0)


def test_an_opened_model_is_not_reported_twice():
    decision = make_decision("open-model", REASON, model=1)
    rows = [{"round": 1}, {"round": 2, "models": 2, "decisions": [decision]}, {"round": 3}]
    assert explain_rows(rows) == [
        "Round 2: The error of 14 clients increased. Opened model 1.",
        "Round 3: 1 model, before 2.",
    ]


def test_sessions_are_reported_when_they_change():
    rows = [{"round": n, "session": session} for n, session in enumerate((0, 0, 1, 1), start=1)]
    assert explain_rows(rows) == ["Round 3: session 1 starts."]


def test_a_page_lists_decisions_and_escapes_them():
    rows = [{"round": 7, "decisions": [{"what": "wait", "reason": "a < b"}]}]
    text = decisions_section([cell([{"round": 1}], "fedavg"), cell(rows)])
    assert "Round 7: A &lt; b. Wait." in text
    assert "fedavg" not in text


def test_a_page_without_decisions_has_no_section():
    assert decisions_section([cell([{"round": 1, "alarms": [2]}])]) == ""


def test_a_page_has_a_limit_and_names_the_command_for_the_rest():
    decision = make_decision("restart-average", REASON)
    rows = [{"round": n, "decisions": [decision]} for n in range(MAX_DECISIONS + 3)]
    text = decisions_section([cell(rows)])
    assert text.count("<li>") == MAX_DECISIONS
    assert "3 more: thalweg explain" in text
