from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from contracts.checkpoint import to_comparable
from contracts.splitting_bank import EvenAndOdd
from federation.scripted_stream import (
    LABELS,
    FixedForecast,
    RecordingSampleWeights,
    ReportsAge,
    ScriptedStream,
    clients,
    play_rounds,
    recipe,
    run_round,
)
from thalweg.aggregation import ByWeight, MemorySummary, ShiftAware
from thalweg.bank import SplitContext
from thalweg.core.errors import ConfigError
from thalweg.federation import ClientContext, ClientProgram, ClientRound, start_round
from thalweg.forecast import Bayesian
from thalweg.memory import Dds, Fifo, Replace, UniformRatio
from thalweg.recipes import RECIPES, fedavg, sfedpo


def test_absent_client_does_not_change() -> None:
    # Its memory and its stream after two rounds are the same, whichever rounds they were.
    who = clients(recipe(UniformRatio(), forecast=Bayesian()))
    close, apart = play_rounds(who, 1, [0, 1]), play_rounds(who, 1, [3, 90])
    assert to_comparable(close) == to_comparable(apart)
    assert close.stream_round == 2
    assert close.forecast.counts.tolist() == [2, 2, 2]


def test_round_of_one_client_does_not_affect_another() -> None:
    who = clients(recipe(UniformRatio()))
    waiting = who.new_client(1)
    before = to_comparable(waiting)
    alone = play_rounds(who, 0, [0, 1])
    assert to_comparable(waiting) == before
    play_rounds(who, 1, [0])
    assert to_comparable(play_rounds(who, 0, [0, 1])) == to_comparable(alone)


def test_client_that_collects_while_absent_misses_only_the_training() -> None:
    who = clients(
        recipe(UniformRatio(), forecast=Bayesian()), ScriptedStream(collects_when_absent=True)
    )
    always, once = play_rounds(who, 1, [0, 1, 2, 3]), play_rounds(who, 1, [3])
    assert to_comparable(always) == to_comparable(once)
    assert once.stream_round == 4
    assert once.forecast.counts.tolist() == [4, 4, 4]


def test_round_does_not_modify_the_state_it_started_from() -> None:
    who = clients(recipe(UniformRatio(), forecast=Bayesian()))
    state = who.new_client(0)
    before = to_comparable(state)
    run_round(start_round(ClientContext(who, 0, 0), state))
    assert to_comparable(state) == before
    again = start_round(ClientContext(who, 0, 0), state)
    assert run_round(again) == run_round(start_round(ClientContext(who, 0, 0), state)), (
        "so it can be repeated"
    )


def test_score_is_that_of_the_expected_states_and_ratios() -> None:
    who = clients(
        recipe(Dds(), forecast=FixedForecast(), weights=ShiftAware()), ScriptedStream(ticks=5)
    )
    client_round = start_round(ClientContext(who, 0, 0), who.new_client(0))
    before = dict(client_round.reports())
    assert before["shift_score"] == pytest.approx(0.764378, abs=1e-6)
    client_round.observe()
    assert dict(client_round.reports()) == before, (
        "reports do not depend on the arrivals of the round"
    )


def test_weights_without_reports_get_none() -> None:
    who = clients(fedavg())
    client_round = start_round(ClientContext(who, 0, 0), who.new_client(0))
    run_round(client_round)
    assert dict(client_round.reports()) == {}


def test_client_can_run_rounds_of_each_published_recipe() -> None:
    for make in RECIPES.values():
        who = clients(make())
        state = play_rounds(who, 0, [0, 1])
        assert (state.stream_round, len(state.rows)) == (2, 4)
    who = clients(sfedpo())
    assert "shift_score" in start_round(ClientContext(who, 0, 0), who.new_client(0)).reports()


def test_weights_receive_the_embeddings_of_the_states() -> None:
    told: list[MemorySummary] = []

    @dataclass(frozen=True)
    class Listens(ReportsAge):
        def report(self, summary: MemorySummary) -> dict[str, float]:
            told.append(summary)
            return {}

    who = clients(recipe(Fifo(), weights=Listens()))
    start_round(ClientContext(who, 0, 0), who.new_client(0)).reports()
    assert told[0].embeddings is not None
    assert told[0].embeddings.tolist() == ScriptedStream().state_table.histograms.tolist()


def test_total_sample_weight_is_reported() -> None:
    who = clients(recipe(Replace(), sample_weights=RecordingSampleWeights(), weights=ByWeight()))
    client_round = start_round(
        ClientContext(who, 0, 0, received={"sample_weights": {"assigned": np.full(1, 2, "f4")}}),
        who.new_client(0),
    )
    run_round(client_round)
    assert client_round.reports() == {"total_weight": 2 * (1 + 2 + 3 + 4)}
    plain_ones = clients(recipe(Replace(), weights=ByWeight()))
    client_round = start_round(ClientContext(plain_ones, 0, 0), plain_ones.new_client(0))
    run_round(client_round)
    assert client_round.reports() == {"total_weight": 4.0}, "each sample has weight one"


# --- several models ---


def two_models(**parts: Any) -> tuple[ClientProgram, ClientRound]:
    who = clients(replace(recipe(Fifo(), **parts), bank=EvenAndOdd()), ScriptedStream(holds=8))
    told = {"bank": {"rounds": np.zeros(1, dtype=np.float32)}}
    return who, start_round(
        ClientContext(who, 0, 0, received=told, models=[0, 1]), who.new_client(0)
    )


def test_models_share_mini_batches_with_sample_weights_from_the_bank() -> None:
    _, client_round = two_models()
    client_round.observe()
    client_round.split_samples(np.zeros((2, len(client_round.rows)), dtype=np.float32))
    first, second = client_round.batches(0), client_round.batches(1)
    assert [batch.rows.tolist() for batch in first] == [batch.rows.tolist() for batch in second]
    for one, other in zip(first, second, strict=True):
        labels = LABELS[one.rows]
        assert one.weights is not None
        assert other.weights is not None
        size = len(one.rows)
        assert one.weights.tolist() == pytest.approx((labels % 2 == 0) / size), "not scaled up"
        assert other.weights.tolist() == pytest.approx((labels % 2 == 1) / size)


def test_sample_with_weight_zero_for_all_models_is_not_used() -> None:
    _, client_round = two_models(weights=ByWeight())
    client_round.observe()
    client_round.split_samples(np.zeros((2, len(client_round.rows)), dtype=np.float32))
    rows = np.concatenate([batch.rows for batch in client_round.batches(0)])
    client_round.batches(1)
    assert 0 in LABELS[client_round.rows]
    assert 0 not in LABELS[rows]
    assert client_round.reports(0)["total_weight"] == np.count_nonzero(LABELS[client_round.rows])


def test_invalid_split_of_a_bank_is_rejected() -> None:
    @dataclass(frozen=True)
    class Negative(EvenAndOdd):
        def split_samples(self, kept: Any, split: SplitContext, received: Any) -> Any:
            return kept, -np.ones_like(split.losses)

    who = clients(replace(recipe(Fifo()), bank=Negative()))
    client_round = start_round(ClientContext(who, 0, 0, models=[0, 1]), who.new_client(0))
    client_round.observe()
    with pytest.raises(ConfigError, match=r"Negative\.split_samples must return finite weights"):
        client_round.split_samples(np.zeros((2, len(client_round.rows)), dtype=np.float32))


def test_client_state_of_the_bank_is_stored_and_uploaded_for_each_model() -> None:
    who, client_round = two_models()
    for _ in range(3):
        client_round.observe()
        client_round.split_samples(np.zeros((2, len(client_round.rows)), dtype=np.float32))
        client_round.end_tick()
    labels = LABELS[client_round.rows]
    share = np.count_nonzero((labels % 2 == 0) & (labels > 0)) / np.count_nonzero(labels)
    assert (
        client_round.upload(0)["bank.share"].tolist()
        == client_round.upload(1)["bank.share"].tolist()
    )
    assert client_round.finish().split.tolist() == [pytest.approx(share)]
    assert who.new_client(0).split.tolist() == [0.5]
