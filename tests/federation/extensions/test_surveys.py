from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from contracts.examples import some_roster
from thalweg.core.errors import ConfigError, Diverged, ShapeMismatch
from thalweg.core.types import Floats, Ints, Roster, Session
from thalweg.federation import RoundContext, new_server
from thalweg.federation.extensions.surveys import send_survey, survey_and_remember
from thalweg.memory import Replace
from thalweg.recipes import Recipe

PLAIN = Recipe("plain", Replace())
BANK = np.zeros((2, 5), dtype=np.float32)


@dataclass(frozen=True)
class SurveysSome:
    """Surveys a fixed list of clients."""

    clients: tuple[int, ...] = (0, 2)
    sends_models: bool = False

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return np.array(self.clients, dtype=np.int64)

    def answer_survey(self, view: Any) -> tuple[None, Mapping[str, Floats]]:
        raise AssertionError("the federation answers")


@dataclass
class AnsweringFederation:
    """A federation whose clients give fixed answers."""

    values: Any
    surveyed: list[tuple[list[int], str]] = field(default_factory=list)

    def survey(self, clients: Ints, stage: str, bank: Any, rnd: int) -> Mapping[str, Floats]:
        self.surveyed.append((clients.tolist(), stage))
        return {"value": np.array(self.values, dtype=np.float64)}


def make_context(values: Any, roster: Roster) -> RoundContext:
    server = new_server(PLAIN, BANK[0], 3)._replace(bank=BANK)
    federation: Any = AnsweringFederation(values)
    session = Session(0, 0, roster.present)
    return RoundContext(0, 0, PLAIN, federation, server, roster, session)


def test_the_newest_responses_are_remembered() -> None:
    before = {"value": np.array([[7.0, 7.0], [8.0, 8.0], [9.0, 9.0]])}
    ctx = make_context([[1, 2], [np.nan, np.nan]], some_roster([0, 1, 2], 3, known=before))
    survey_and_remember(ctx, "selection", SurveysSome())
    assert ctx.roster.known["value"].tolist() == [[1, 2], [8, 8], [9, 9]]
    assert before["value"][0].tolist() == [7, 7], "the table of the last round is not changed"


def test_a_client_that_never_responded_has_nan() -> None:
    ctx = make_context([[1], [2]], some_roster([0, 1, 2], 3))
    survey_and_remember(ctx, "selection", SurveysSome())
    assert np.isnan(ctx.roster.known["value"][1]).all()


def test_the_roster_lists_the_clients_surveyed_in_this_round() -> None:
    known = {"value": np.array([[7.0], [8.0], [9.0]])}
    ctx = make_context([[1], [np.nan]], some_roster([0, 1, 2], 3, known=known))
    assert ctx.roster.surveyed is None
    survey_and_remember(ctx, "selection", SurveysSome())
    assert ctx.roster.surveyed is not None
    assert ctx.roster.surveyed.tolist() == [0, 2], "also clients without a response"
    survey_and_remember(ctx, "selection", SurveysSome(clients=()))
    assert ctx.roster.surveyed.tolist() == []


def test_a_policy_without_a_survey_costs_nothing() -> None:
    roster = some_roster([0], 3)
    ctx = make_context([[1]], roster)
    survey_and_remember(ctx, "selection", object())
    assert ctx.roster is roster
    assert send_survey(ctx, "bank", object())[1] == {}
    assert (ctx.bytes_down, ctx.bytes_up) == (0, 0)


def test_without_surveyed_clients_there_is_no_survey() -> None:
    ctx = make_context([], some_roster([0], 3))
    assert send_survey(ctx, "bank", SurveysSome(clients=()))[1] == {}
    federation: Any = ctx.federation
    assert federation.surveyed == []


def test_bytes_are_counted_in_both_directions() -> None:
    ctx = make_context([[1, 2], [np.nan, np.nan]], some_roster([0, 1, 2], 3))
    send_survey(ctx, "bank", SurveysSome(sends_models=True))
    assert ctx.bytes_down == 2 * BANK.nbytes
    assert ctx.bytes_up == 2 * 8, "a missing response costs nothing"
    assert ctx.sent_bank_to == {0, 2}


def test_surveying_an_absent_client_is_an_error() -> None:
    with pytest.raises(
        ConfigError, match=r"SurveysSome\.choose_surveyed must return some of the 1"
    ):
        send_survey(make_context([[1], [2]], some_roster([0], 3)), "bank", SurveysSome())


def test_an_infinite_response_is_an_error_with_the_client() -> None:
    ctx = make_context([[1], [np.inf]], some_roster([0, 1, 2], 3))
    with pytest.raises(Diverged, match="of client 2 to the survey of the bank is not a finite"):
        send_survey(ctx, "bank", SurveysSome())


@pytest.mark.parametrize("values", [[[1]], [1, 2]])
def test_responses_of_the_wrong_shape_are_an_error(values: Any) -> None:
    ctx = make_context(values, some_roster([0, 1, 2], 3))
    with pytest.raises(ShapeMismatch, match="expected 2 rows: one per client"):
        send_survey(ctx, "bank", SurveysSome())
