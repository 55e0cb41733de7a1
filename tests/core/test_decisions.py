import pytest

from thalweg.core.decisions import ACTIONS, describe_decision, make_decision
from thalweg.core.errors import ConfigError


def test_an_unknown_code_is_rejected_with_the_known_ones():
    with pytest.raises(ConfigError, match="expected one of open-session"):
        make_decision("open", "no reason")


def test_a_value_of_the_sentence_must_be_given():
    with pytest.raises(KeyError, match="model"):
        make_decision("open-model", "no reason")


@pytest.mark.parametrize("what", ACTIONS)
def test_every_action_gives_two_sentences(what):
    values = {"session": 3, "model": 2, "other": 4, "candidate": "the mean"}
    text = describe_decision({"what": what, "reason": "5 clients left", **values})
    assert text.startswith("5 clients left. ")
    assert text.endswith(".")
    assert "{" not in text


def test_a_restart_names_the_model_if_there_are_several():
    decision = make_decision("restart-average", "2 of 3 clients raised an alarm")
    assert describe_decision(decision).endswith("Restarted the average of the models.")
    text = describe_decision({**decision, "model": 1})
    assert text.endswith("Restarted the average of model 1.")
