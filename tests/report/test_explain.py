from thalweg.core.decisions import make_decision
from thalweg.report.cells import Cell
from thalweg.report.explain import PREDICTORS, explain_rows
from thalweg.report.html_page import MAX_DECISIONS, decisions_section
from thalweg.serving import LATEST, MODEL, OPTIONAL

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


def test_a_bank_that_starts_with_several_models_has_opened_none():
    assert explain_rows([{"round": 1, "models": 3}, {"round": 2, "models": 3}]) == []


def test_sessions_are_reported_when_they_change():
    rows = [{"round": n, "session": session} for n, session in enumerate((0, 0, 1, 1), start=1)]
    assert explain_rows(rows) == ["Round 3: Session 1 starts."]


def test_sessions_of_the_scenario_are_not_those_of_a_recipe_with_a_trigger():
    rows = [{"round": n, "session": session} for n, session in enumerate((0, 1, 1, 2), start=1)]
    assert explain_rows(rows, has_trigger=True) == []
    rows[2]["decisions"] = [make_decision("open-session", "3 of 6 members changed", session=1)]
    assert explain_rows(rows) == ["Round 3: 3 of 6 members changed. Opened session 1."]


def test_an_alarm_is_reported_with_its_meaning():
    rows = [{"round": 2, "alarms": [4]}]
    assert explain_rows(rows) == ["Round 2: Alarm at client 4."]
    assert explain_rows(rows, alarm="the error has changed (ddm)") == [
        "Round 2: Alarm at client 4: the error has changed (ddm)."
    ]


def test_predictors_that_clients_do_not_use_are_left_out():
    rows = [{"round": 1, "serving_weights": {"latest": 0.996, "trained": 0.004}}, {"round": 2}]
    assert explain_rows(rows) == ["After round 1: Clients predict with the received model (100%)."]


def test_all_predictors_are_named_in_words():
    rows = [{"round": 1, "serving_weights": {"adjusted": 0.75, "trained": 0.25}}]
    assert explain_rows(rows) == [
        "After round 1: Clients predict with the adjusted model (75%) and the locally trained "
        "model (25%)."
    ]


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


def test_every_kind_of_predictor_has_a_description():
    assert set(PREDICTORS) == {LATEST, MODEL, *OPTIONAL}


def test_control_characters_are_replaced():
    decision = {"what": "wait", "reason": "\x1b]0;title\x07 \x9b31m \u202e"}
    rows = [{"round": 1, "decisions": [decision]}]
    assert explain_rows(rows) == ["Round 1: ?]0;title? ?31m ?. Wait."]
    assert not {"\x1b", "\x9b", "\u202e"} & set(decisions_section([cell(rows)]))


def test_a_run_in_which_no_predictor_has_weight_is_explained():
    assert explain_rows([{"round": 1, "serving_weights": {"latest": float("nan")}}]) == []
