from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.checkpoint import round_trip, to_comparable
from contracts.model_probes import FakeModelProbe
from federation.scripted_stream import (
    LABELS,
    FixedForecast,
    RecordingForesightedMemory,
    RecordingMemory,
    ReportsAge,
    ScriptedStream,
    clients,
    play_rounds,
    recipe,
    run_round,
)
from thalweg.aggregation import ShiftAware
from thalweg.core.errors import ConfigError
from thalweg.core.noise import SimulatedNoise
from thalweg.core.types import Ints, MemoryContext
from thalweg.federation import ClientContext, ClientProgram, start_round
from thalweg.forecast import Bayesian, Exact, Growing
from thalweg.local import LocalTraining
from thalweg.memory import Dds, Fifo, Importance, Ode, Reservoir, UniformRatio
from thalweg.selection import Available
from thalweg.streams import Replay, Setting


def test_memory_is_called_once_per_tick_with_the_new_samples() -> None:
    diary = RecordingMemory()
    who = clients(recipe(diary))
    run_round(start_round(ClientContext(who, 1, 0), who.new_client(1)))
    assert [intake.state for intake in diary.recorded] == [0, 1, 2]
    assert [(intake.held, intake.num_new, intake.capacity) for intake in diary.recorded] == [
        (4, 4, 4)
    ] * 3
    first = diary.recorded[0]
    assert first.held_labels.tolist() == LABELS[100_000:100_004].tolist()
    assert first.new_labels.tolist() == LABELS[110_000:110_004].tolist()
    assert diary.recorded[1].held_labels.tolist() == LABELS[110_000:110_004].tolist()


def test_memory_of_500_renews_268_276_and_167() -> None:
    world = ScriptedStream(start=500, per_tick=500)
    who = clients(recipe(Dds(), forecast=FixedForecast()), world, capacity=500)
    client_round = start_round(ClientContext(who, 0, 0), who.new_client(0))
    renewed = []
    for arrival in client_round.arrivals:
        before = client_round.rows
        client_round.observe()
        assert len(client_round.rows) == 500
        renewed.append(np.count_nonzero(client_round.rows != before))
        assert np.isin(arrival.items, client_round.rows).sum() == renewed[-1]
    assert renewed == [268, 276, 167]


def test_forecast_observes_a_round_after_its_end() -> None:
    who = clients(
        recipe(UniformRatio(), forecast=Bayesian(), weights=ReportsAge()), ScriptedStream(ticks=1)
    )
    client_round = start_round(ClientContext(who, 0, 0), who.new_client(0))
    assert client_round.reports()["expected"] == pytest.approx(1 / 3)
    run_round(client_round, ticks=1)
    assert client_round.outlook.probs == pytest.approx([1 / 3] * 3)
    assert client_round.reports()["expected"] == pytest.approx(1 / 3), (
        "no leak of this round's states"
    )
    following = start_round(ClientContext(who, 0, 1), client_round.finish())
    assert following.outlook.probs == pytest.approx([2 / 4, 1 / 4, 1 / 4])
    assert following.reports()["expected"] == pytest.approx(2 / 4)


def test_predicted_renewal_is_for_the_start_of_the_round() -> None:
    diary = RecordingForesightedMemory()
    who = clients(recipe(diary, weights=ReportsAge()))
    client_round = start_round(ClientContext(who, 0, 0), who.new_client(0))
    run_round(client_round)
    report = client_round.reports()
    assert [report[f"renewal {m}"] for m in range(3)] == [0.125] * 3
    assert report["ticks"] == 3
    (asked,) = diary.asked
    assert to_comparable(asked) == to_comparable(diary.recorded[0])


def test_predicted_renewal_uses_the_memory_state_at_the_start_of_the_round() -> None:
    who = clients(recipe(Reservoir(), weights=ReportsAge()))
    client_round = start_round(ClientContext(who, 0, 0), who.new_client(0))
    run_round(client_round)
    assert client_round.reports()["renewal 0"] == 4 / 8
    following = start_round(ClientContext(who, 0, 1), client_round.finish())
    run_round(following)
    assert following.reports()["renewal 0"] == 4 / 20  # 4 at birth, 3 * 4 in the first round


def test_renewal_is_measured_for_a_memory_that_cannot_predict_it() -> None:
    # Two of the four samples held are new after each tick.
    who = clients(recipe(RecordingMemory(), weights=ReportsAge()), ScriptedStream(per_tick=2))
    client_round = start_round(ClientContext(who, 0, 0), who.new_client(0))
    run_round(client_round)
    report = client_round.reports()
    assert [report[f"renewal {m}"] for m in range(3)] == [0.5] * 3


def test_memory_fills_up_as_rows_arrive() -> None:
    world = Replay(num_clients=2, arrivals=3).build(
        Setting(np.zeros(40, dtype=np.int64), 1, ticks=1, capacity=8, rounds=9, seed=0)
    )
    who = clients(recipe(UniformRatio(), forecast=Exact()), world)
    held = [len(play_rounds(who, 0, list(range(rounds))).rows) for rounds in range(5)]
    assert held == [0, 3, 6, 8, 8]


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        (
            [0, 1, 2, 3, 4],
            r"at most 4 different positions in \[0, 8\), got 5 from 0 to 4, 5 of them",
        ),
        ([0, 8], "got 2 from 0 to 8"),
        ([-1, 2], "got 2 from -1 to 2"),
        ([1, 1, 2], "got 3 from 1 to 2, 2 of them different"),
    ],
)
def test_memory_that_returns_invalid_positions_is_named_in_the_error(
    kept: list[int], message: str
) -> None:
    @dataclass(frozen=True)
    class Careless(RecordingMemory):
        def keep(
            self, state: None, intake: MemoryContext, rng: np.random.Generator
        ) -> tuple[None, Ints]:
            return None, np.array(kept)

    who = clients(recipe(Careless()))
    with pytest.raises(ConfigError, match=rf"Careless\.keep must return .*{message}"):
        start_round(ClientContext(who, 0, 0), who.new_client(0)).observe()


def test_memory_may_keep_no_sample() -> None:
    @dataclass(frozen=True)
    class KeepsNothing(RecordingMemory):
        def keep(
            self, state: None, intake: MemoryContext, rng: np.random.Generator
        ) -> tuple[None, Ints]:
            return None, np.empty(0, dtype=np.int64)

    who = clients(recipe(KeepsNothing()))
    client_round = start_round(ClientContext(who, 0, 0), who.new_client(0))
    assert run_round(client_round) == []
    assert client_round.finish().rows.tolist() == []


@dataclass(frozen=True, eq=False)
class ThreeClasses(ScriptedStream):
    """The same, but it starts with class 0, and tick t of every round has only class 2 - t."""

    @property
    def labels(self) -> Ints:
        rows = np.arange(300_000)
        return np.where(rows % 100_000 < 10_000, 0, 2 - rows % 10_000 // 1_000)


def growing_clients(memory: Any, oracle: Any, **parts: Any) -> ClientProgram:
    world = ThreeClasses(**parts)
    who = recipe(memory, forecast=oracle, weights=ShiftAware(mismatch="kme"))
    return ClientProgram(
        who,
        world,
        world.labels,
        LocalTraining(lr=0.1, batch_size=3, steps=2),
        seed=0,
        noise=SimulatedNoise(),
    )


def test_memory_receives_the_states_of_a_forecast_that_finds_them() -> None:
    diary = RecordingMemory()
    who = growing_clients(diary, Growing(), ticks=2)
    new_client = who.new_client(0)
    assert new_client.forecast.signatures.tolist() == [[1, 0, 0]], "the initial samples"
    assert new_client.forecast.counts.tolist() == [0]
    client_round = start_round(ClientContext(who, 0, 0), new_client)
    run_round(client_round, ticks=2)
    assert [intake.state for intake in diary.recorded] == [1, 2]
    # Opened in mid-round: the memory sees as many states as it needs, the weights those of before.
    assert [len(intake.outlook.probs) for intake in diary.recorded] == [2, 3]
    assert len(client_round.outlook.probs) == 1
    assert client_round.finish().forecast.counts.tolist() == [0, 1, 1]
    following = start_round(ClientContext(who, 0, 1), client_round.finish())
    assert following.outlook.probs.tolist() == pytest.approx([1 / 5, 2 / 5, 2 / 5])


def test_state_opened_in_a_round_does_not_change_its_reports() -> None:
    for memory in (Dds(), RecordingMemory()):  # with and without foresight
        who = growing_clients(memory, Growing())
        client_round = start_round(ClientContext(who, 0, 0), who.new_client(0))
        client_round.observe()
        before = dict(client_round.reports())
        run_round(client_round, 2)
        assert client_round.reports() == before
        following = start_round(ClientContext(who, 0, 1), client_round.finish())
        run_round(following)
        assert (len(client_round.outlook.probs), len(following.outlook.probs)) == (1, 3)
        # Without a predicted renewal, a score is the mean heterogeneity of the states, which is
        # ln 3 for a single class.
        wanted = 1.296702 if isinstance(memory, Dds) else np.log(3)
        assert following.reports() == {"shift_score": pytest.approx(wanted)}, (
            "the outlook of the next round has them"
        )


def test_dds_has_a_ratio_for_a_newly_opened_state() -> None:
    who = growing_clients(Dds(budget=0.5), Growing())
    client_round = start_round(ClientContext(who, 0, 0), who.new_client(0))
    run_round(client_round)
    assert len(client_round.rows) == 4
    assert np.unique(who.labels[client_round.rows]).size > 1


def test_client_with_learned_states_resumes_from_a_checkpoint(tmp_path: Path) -> None:
    who = growing_clients(Dds(), Growing())
    state = play_rounds(who, 1, [0, 1])
    restored = round_trip(state, fresh=who.new_client(1))
    assert len(restored.forecast.counts) == 3
    assert len(who.new_client(1).forecast.counts) == 1
    assert to_comparable(restored) == to_comparable(state)
    assert run_round(start_round(ClientContext(who, 1, 2), restored)) == run_round(
        start_round(ClientContext(who, 1, 2), state)
    )


def test_states_are_found_during_an_absence() -> None:
    who = growing_clients(Dds(), Growing(), collects_when_absent=True)
    assert to_comparable(play_rounds(who, 1, [0, 1, 2])) == to_comparable(play_rounds(who, 1, [2]))


class NotingLook(FakeModelProbe):
    """Records the number of samples of each call."""

    def last_layer(self, rows: Ints, received: bool) -> Any:
        self.asked.append([len(rows), int(received)])
        return super().last_layer(rows, received)


@pytest.mark.parametrize(
    ("memory", "asked"),
    [(Ode(), [[8, 1], [4, 1], [4, 1]]), (Importance(), [[8, 0], [8, 0], [8, 0]])],
)
def test_samples_are_probed_once_if_the_model_does_not_change(
    memory: Any, asked: list[list[int]]
) -> None:
    who, look = clients(recipe(memory)), NotingLook([])
    run_round(start_round(ClientContext(who, 0, 0, [look]), who.new_client(0)))
    assert look.asked == asked


def test_arrival_rounds_are_not_stored_without_sample_weights() -> None:
    who = clients(recipe(Fifo()))
    assert play_rounds(who, 0, [0, 1]).since is None


@dataclass(frozen=True)
class Counting(Available):
    def init_counts(self, num_classes: int) -> Ints:
        return np.zeros(num_classes, dtype=np.int64)

    def count_labels(self, label_counts: Ints, labels: Ints) -> Ints:
        return label_counts + np.bincount(labels % len(label_counts), minlength=len(label_counts))


def test_selection_that_counts_labels_receives_each_arriving_label() -> None:
    who = clients(recipe(Fifo(), selection=Counting()))
    assert who.new_client(0).label_counts.sum() == 4, "initial samples are counted, too"
    state = play_rounds(who, 0, [0, 1])
    assert state.label_counts.sum() == 4 + 2 * 3 * 4
    assert to_comparable(round_trip(state, fresh=who.new_client(0))) == to_comparable(state)
