from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from contracts.checkpoint import plain
from contracts.dividing import EvenAndOdd
from recipes.script import (
    LABELS,
    Emphatic,
    Expects,
    ReportsAge,
    Script,
    clients,
    live,
    played,
    recipe,
)
from thalweg.aggregation import Age, ByWeight, Division, ShiftAware
from thalweg.core.errors import ConfigError
from thalweg.forecast import Bayesian
from thalweg.memory import Dds, Fifo, Replace, UniformRatio
from thalweg.recipes import RECIPES, fedavg, sfedpo
from thalweg.recipes.client import Clients
from thalweg.recipes.visit import ClientRound, enter


def test_a_client_that_is_away_stands_still() -> None:
    # Its memory and its stream after two rounds are the same, whichever rounds they were.
    who = clients(recipe(UniformRatio(), forecast=Bayesian()))
    close, apart = played(who, 1, [0, 1]), played(who, 1, [3, 90])
    assert plain(close) == plain(apart)
    assert close.lived == 2
    assert close.forecast.visits.tolist() == [2, 2, 2]


def test_the_visit_of_one_client_changes_nothing_for_another() -> None:
    who = clients(recipe(UniformRatio()))
    waiting = who.newborn(1)
    before = plain(waiting)
    alone = played(who, 0, [0, 1])
    assert plain(waiting) == before
    played(who, 1, [0])
    assert plain(played(who, 0, [0, 1])) == plain(alone)


def test_a_client_that_collects_while_away_has_missed_nothing_but_the_training() -> None:
    who = clients(recipe(UniformRatio(), forecast=Bayesian()), Script(collects_when_absent=True))
    always, once = played(who, 1, [0, 1, 2, 3]), played(who, 1, [3])
    assert plain(always) == plain(once)
    assert once.lived == 4
    assert once.forecast.visits.tolist() == [4, 4, 4]


def test_a_visit_does_not_change_the_state_it_began_with() -> None:
    who = clients(recipe(UniformRatio(), forecast=Bayesian()))
    state = who.newborn(0)
    before = plain(state)
    live(enter(who, 0, state, 0))
    assert plain(state) == before
    again = enter(who, 0, state, 0)
    assert live(again) == live(enter(who, 0, state, 0)), "so it can be repeated"


def test_the_score_is_that_of_the_expected_states_and_ratios() -> None:
    who = clients(recipe(Dds(), forecast=Expects(), weights=ShiftAware()), Script(ticks=5))
    visit = enter(who, 0, who.newborn(0), 0)
    before = dict(visit.reports())
    assert before["shift_score"] == pytest.approx(0.764378, abs=1e-6)
    visit.observe()
    assert dict(visit.reports()) == before, "what happens in the round does not matter"


def test_weights_that_ask_for_nothing_get_nothing() -> None:
    who = clients(fedavg())
    visit = enter(who, 0, who.newborn(0), 0)
    live(visit)
    assert dict(visit.reports()) == {}


def test_every_published_recipe_can_be_lived() -> None:
    for make in RECIPES.values():
        who = clients(make())
        state = played(who, 0, [0, 1])
        assert (state.lived, len(state.rows)) == (2, 4)
    who = clients(sfedpo())
    assert "shift_score" in enter(who, 0, who.newborn(0), 0).reports()


def test_the_weights_are_told_what_the_states_of_the_world_are_like() -> None:
    told: list[Age] = []

    @dataclass(frozen=True)
    class Listens(ReportsAge):
        def report(self, age: Age) -> dict[str, float]:
            told.append(age)
            return {}

    who = clients(recipe(Fifo(), weights=Listens()))
    enter(who, 0, who.newborn(0), 0).reports()
    assert told[0].embeddings is not None
    assert told[0].embeddings.tolist() == Script().book.histograms.tolist()


def test_the_total_weight_is_reported() -> None:
    who = clients(recipe(Replace(), emphasis=Emphatic(), weights=ByWeight()))
    visit = enter(who, 0, who.newborn(0), 0, heard={"emphasis": {"assigned": np.full(1, 2, "f4")}})
    live(visit)
    assert visit.reports() == {"total_weight": 2 * (1 + 2 + 3 + 4)}
    plain_ones = clients(recipe(Replace(), weights=ByWeight()))
    visit = enter(plain_ones, 0, plain_ones.newborn(0), 0)
    live(visit)
    assert visit.reports() == {"total_weight": 4.0}, "all count one"


# --- several models ---


def two_models(**parts: Any) -> tuple[Clients, ClientRound]:
    who = clients(replace(recipe(Fifo(), **parts), bank=EvenAndOdd()), Script(holds=8))
    told = {"bank": {"rounds": np.zeros(1, dtype=np.float32)}}
    return who, enter(who, 0, who.newborn(0), 0, heard=told, models=[0, 1])


def test_all_models_see_the_same_mini_batches_and_samples_count_for_each_what_the_bank_says() -> (
    None
):
    _, visit = two_models()
    visit.observe()
    visit.divide(np.zeros((2, len(visit.rows)), dtype=np.float32))
    first, second = visit.batches(0), visit.batches(1)
    assert [batch.rows.tolist() for batch in first] == [batch.rows.tolist() for batch in second]
    for one, other in zip(first, second, strict=True):
        labels = LABELS[one.rows]
        assert one.weights is not None
        assert other.weights is not None
        size = len(one.rows)
        assert one.weights.tolist() == pytest.approx((labels % 2 == 0) / size), "not scaled up"
        assert other.weights.tolist() == pytest.approx((labels % 2 == 1) / size)


def test_a_sample_that_counts_for_no_model_is_not_learnt_from() -> None:
    _, visit = two_models(weights=ByWeight())
    visit.observe()
    visit.divide(np.zeros((2, len(visit.rows)), dtype=np.float32))
    rows = np.concatenate([batch.rows for batch in visit.batches(0)])
    visit.batches(1)
    assert 0 in LABELS[visit.rows]
    assert 0 not in LABELS[rows]
    assert visit.reports(0)["total_weight"] == np.count_nonzero(LABELS[visit.rows])


def test_a_bank_that_divides_wrongly_is_refused() -> None:
    @dataclass(frozen=True)
    class Negative(EvenAndOdd):
        def divide(self, kept: Any, division: Division, heard: Any) -> Any:
            return kept, -np.ones_like(division.losses)

    who = clients(replace(recipe(Fifo()), bank=Negative()))
    visit = enter(who, 0, who.newborn(0), 0, models=[0, 1])
    visit.observe()
    with pytest.raises(ConfigError, match=r"Negative\.divide must return finite weights"):
        visit.divide(np.zeros((2, len(visit.rows)), dtype=np.float32))


def test_what_the_bank_keeps_at_a_client_is_remembered_and_said_for_every_model() -> None:
    who, visit = two_models()
    for _ in range(3):
        visit.observe()
        visit.divide(np.zeros((2, len(visit.rows)), dtype=np.float32))
        visit.pause()
    labels = LABELS[visit.rows]
    share = np.count_nonzero((labels % 2 == 0) & (labels > 0)) / np.count_nonzero(labels)
    assert visit.say(0)["bank.share"].tolist() == visit.say(1)["bank.share"].tolist()
    assert visit.leave().division.tolist() == [pytest.approx(share)]
    assert who.newborn(0).division.tolist() == [0.5]
