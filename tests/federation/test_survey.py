from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from contracts.examples import some_roster
from thalweg.core.errors import ConfigError, ShapeMismatch
from thalweg.core.types import Floats, Ints, Roster
from thalweg.federation.survey import Survey

BANK = np.zeros((2, 5), dtype=np.float32)


@dataclass(frozen=True)
class Curious:
    """Asks the clients it was told to ask."""

    clients: tuple[int, ...] = (0, 2)
    sends_models: bool = False

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return np.array(self.clients, dtype=np.int64)

    def answer_survey(self, view: Any) -> tuple[None, Mapping[str, Floats]]:
        raise NotImplementedError


@dataclass
class Answering:
    """A federation whose clients say what they were told to say."""

    words: Any
    asked: list[tuple[list[int], str]] = field(default_factory=list)

    def survey(self, clients: Ints, stage: str, bank: Any, rnd: int) -> Mapping[str, Floats]:
        self.asked.append((clients.tolist(), stage))
        return {"word": np.array(self.words, dtype=np.float64)}


def survey(words: Any) -> Survey:
    return Survey(Answering(words), BANK, 0, seed=0)  # type: ignore[arg-type]


def test_answers_are_remembered_for_those_who_spoke() -> None:
    before = {"word": np.array([[7.0, 7.0], [8.0, 8.0], [9.0, 9.0]])}
    roster = some_roster([0, 1, 2], 3, known=before)
    known = (
        survey([[1, 2], [np.nan, np.nan]]).ask_and_remember("selection", Curious(), roster).known
    )
    assert known["word"].tolist() == [[1, 2], [8, 8], [9, 9]]
    assert before["word"][0].tolist() == [7, 7], "what was known before is untouched"


def test_who_never_answered_is_unknown() -> None:
    roster = some_roster([0, 1, 2], 3)
    known = survey([[1], [2]]).ask_and_remember("selection", Curious(), roster).known
    assert np.isnan(known["word"][1]).all()


def test_who_was_asked_in_this_round_is_told_apart_from_who_ever_answered() -> None:
    roster = some_roster([0, 1, 2], 3, known={"word": np.array([[7.0], [8.0], [9.0]])})
    now = survey([[1], [np.nan]]).ask_and_remember("selection", Curious(), roster)
    assert now.asked is not None
    assert now.asked.tolist() == [0, 2], "also those who had nothing to say"
    assert roster.asked is None
    nobody = survey([]).ask_and_remember("selection", Curious(clients=()), now)
    assert nobody.asked is not None
    assert nobody.asked.tolist() == []


def test_a_policy_that_asks_nothing_costs_nothing() -> None:
    roster, asking = some_roster([0], 3), survey([[1]])
    assert asking.ask_and_remember("selection", object(), roster) is roster
    assert asking.ask("bank", object(), roster)[1] == {}
    assert (asking.bytes_down, asking.bytes_up) == (0, 0)


def test_nobody_to_ask_is_no_survey() -> None:
    asking = survey([])
    assert asking.ask("bank", Curious(clients=()), some_roster([0], 3))[1] == {}


def test_bytes_are_counted_both_ways() -> None:
    asking = survey([[1, 2], [np.nan, np.nan]])
    asking.ask("bank", Curious(sends_models=True), some_roster([0, 1, 2], 3))
    assert asking.bytes_down == 2 * BANK.nbytes
    assert asking.bytes_up == 2 * 8, "silence is free"
    assert asking.sent_bank_to == {0, 2}


def test_asking_somebody_who_is_not_here_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"Curious\.choose_surveyed must return some of the 1 clients"
    ):
        survey([[1], [2]]).ask("bank", Curious(), some_roster([0], 3))


@pytest.mark.parametrize("words", [[[1]], [1, 2], [[np.inf], [1]]])
def test_answers_of_the_wrong_kind_are_refused(words: Any) -> None:
    with pytest.raises(ShapeMismatch, match="expected 2 rows of finite numbers"):
        survey(words).ask("bank", Curious(), some_roster([0, 1, 2], 3))
