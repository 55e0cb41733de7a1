from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.checkpoint import to_comparable
from thalweg.core.errors import ConfigError
from thalweg.core.types import Supply
from thalweg.streams import (
    AtStart,
    Bursts,
    ConstantRate,
    Dirichlet,
    Even,
    Groups,
    Inflow,
    OneShot,
    Pachinko,
    Poisson,
    Setting,
)
from thalweg.streams.inflow_world import InflowWorld

LABELS = np.arange(120) % 4
GROUP = np.repeat(np.arange(6), 20)


def build_world(
    spec: Inflow,
    *,
    rounds: int = 10,
    ticks: int = 1,
    capacity: int = 8,
    seed: int = 0,
    client: Any = None,
) -> InflowWorld:
    return spec.build(Setting(LABELS, 4, ticks, capacity, rounds, seed, client=client))


def even(**changes: Any) -> Inflow:
    """Six clients with twenty samples each."""
    return Inflow(num_clients=6, partition=Even(), **changes)


def arrival_lists(world: InflowWorld, client: int, rounds: int = 10) -> list[list[int]]:
    """Initial samples of the client, then the samples of every tick."""
    state, start = world.begin(client)
    came = [start.items.tolist()]
    for stream_round in range(rounds):
        state, arrivals = world.emit(state, client, stream_round)
        came += [arrival.items.tolist() for arrival in arrivals]
    return came


def all_of(came: list[list[int]]) -> list[int]:
    return [row for rows in came for row in rows]


def sizes(came: list[list[int]]) -> list[int]:
    return [len(rows) for rows in came]


PROCESSES = (
    ConstantRate(),
    ConstantRate(2.5),
    Poisson(),
    Poisson(7.0),
    Bursts(40, every=3),
    Bursts(every=None, probability=0.5),
    OneShot(),
    OneShot(width=3),
    AtStart(),
)


@settings(max_examples=60, deadline=None)
@given(
    arrivals=st.sampled_from(PROCESSES),
    partition=st.sampled_from((Even(), Dirichlet(0.1), Dirichlet(0.4, imbalance=0.5), Groups())),
    absent=st.sampled_from(("frozen", "collecting")),
    label_change=st.sampled_from((0.0, 0.3, 1.0)),
    historical=st.sampled_from((0.0, 0.5, 1.0)),
    ticks=st.integers(1, 4),
    seed=st.integers(0, 3),
)
def test_every_sample_arrives_at_most_once_at_one_client(
    ticks: int, seed: int, **parts: Any
) -> None:
    spec = Inflow(num_clients=6, rate_spread=0.5, **parts)
    world = build_world(spec, ticks=ticks, seed=seed, client=GROUP)
    lives = [arrival_lists(world, client) for client in range(6)]
    rows = [row for came in lives for part in came for row in part]
    assert len(set(rows)) == len(rows)
    for client, came in enumerate(lives):
        assert sum(sizes(came)) <= len(world.queues[client].rows)
    same = build_world(spec, ticks=ticks, seed=seed, client=GROUP)
    assert [arrival_lists(same, client) for client in range(6)] == lives


@settings(max_examples=30, deadline=None)
@given(arrivals=st.sampled_from(PROCESSES), stream_round=st.integers(0, 12), seed=st.integers(0, 3))
def test_emit_is_repeatable_and_leaves_the_state_unchanged(
    arrivals: Any, stream_round: int, seed: int
) -> None:
    world = build_world(even(arrivals=arrivals, label_change=0.5, at_end="restart"), seed=seed)
    state, _ = world.begin(1)
    before = to_comparable(state)
    first = to_comparable(world.emit(state, 1, stream_round))
    assert to_comparable(state) == before
    assert to_comparable(world.emit(state, 1, stream_round)) == first


def test_historical_clients_start_with_all_samples_and_fresh_ones_with_none() -> None:
    world = build_world(even(historical=0.5))
    assert sizes(arrival_lists(world, 2)) == [20] + [0] * 10
    assert sizes(arrival_lists(world, 3)) == [0] + [2] * 10
    assert [world.supply(client).is_historical for client in range(6)] == [True] * 3 + [False] * 3


def test_fresh_clients_receive_all_samples_by_the_end_of_the_run() -> None:
    world = build_world(even(historical=0.5), rounds=7)
    for client in range(6):
        came = all_of(arrival_lists(world, client, 7))
        assert sorted(came) == sorted(world.queues[client].rows.tolist())


def test_arrivals_of_a_round_are_spread_over_its_ticks() -> None:
    world = build_world(even(arrivals=ConstantRate(5)), ticks=3)
    assert sizes(arrival_lists(world, 0, 2)) == [0, 2, 2, 1, 2, 2, 1]


def test_exhausted_stream_stops_or_restarts() -> None:
    came = arrival_lists(build_world(even(arrivals=ConstantRate(8))), 0, 4)
    assert sizes(came) == [0, 8, 8, 4, 0]
    again = arrival_lists(build_world(even(arrivals=ConstantRate(8), at_end="restart")), 0, 5)
    assert sizes(again) == [0, 8, 8, 8, 8, 8]
    assert np.bincount(all_of(again)).tolist().count(2) == 20


def test_one_arrival_can_exceed_the_memory_capacity() -> None:
    world = build_world(even(arrivals=Bursts(15, every=1)), capacity=3)
    assert sizes(arrival_lists(world, 0, 2)) == [0, 15, 5]
    assert world.capacity(0) == 3


def test_capacity_comes_from_the_scenario_or_the_client() -> None:
    scenario, own = (
        build_world(even(historical=0.5, capacity_of=whose), rounds=8)
        for whose in ("scenario", "own")
    )
    assert [scenario.capacity(client) for client in (0, 5)] == [8, 8]
    assert [own.capacity(client) for client in (0, 5)] == [20, 3]  # 2.5 per round


def test_client_without_data_is_present_but_receives_nothing() -> None:
    world = build_world(
        Inflow(num_clients=50, partition=Dirichlet(0.01), capacity_of="own", at_end="restart")
    )
    empty = next(n for n in range(50) if len(world.queues[n].rows) == 0)
    assert empty in world.present(0)
    assert sizes(arrival_lists(world, empty)) == [0] * 11
    assert world.capacity(empty) == 1
    assert world.supply(empty) == Supply(0.0, False, 10.0)
    assert world.mixes[empty].tolist() == [0, 0, 0, 0]


def test_one_shot_clients_are_present_only_while_their_data_arrive() -> None:
    world = build_world(even(historical=0.34, arrivals=OneShot(width=2)))
    here = np.array([[client in world.present(rnd) for client in range(6)] for rnd in range(10)])
    assert here[:, :2].all(), "historical clients always are"
    assert here[:, 2:].sum(axis=0).tolist() == [2, 2, 2, 2]
    assert sorted(here[:, 2:].argmax(axis=0).tolist()) == [0, 2, 4, 6]
    assert world.availability.tolist() == [1, 1, 0.2, 0.2, 0.2, 0.2]
    assert world.supply(3) == Supply(20.0, False, 2.0)
    # It takes part in both of its rounds, and these are the first that it lives.
    assert sizes(arrival_lists(world, 3, 3)) == [0, 10, 10, 0]


def test_collecting_one_shot_clients_receive_data_in_their_rounds() -> None:
    world = build_world(even(arrivals=OneShot(), absent="collecting"))
    for client in range(6):
        (rnd,) = (rnd for rnd in range(10) if client in world.present(rnd))
        assert sizes(arrival_lists(world, client)) == [0, *(20 * (r == rnd) for r in range(10))]


def test_one_shot_width_beyond_the_run_covers_the_whole_run() -> None:
    world = build_world(even(arrivals=OneShot(width=20)))
    assert world.availability.tolist() == [1.0] * 6
    assert world.supply(0) == Supply(10.0, False, 10.0)


def test_supply_is_limited_by_owned_rows_unless_the_stream_restarts() -> None:
    assert build_world(even()).supply(0) == Supply(20.0, False, 10.0)
    assert build_world(even(arrivals=ConstantRate(1))).supply(0) == Supply(10.0, False, 10.0)
    assert build_world(even(arrivals=Poisson(3))).supply(0) == Supply(20.0, False, 10.0)
    restart = even(arrivals=Poisson(3), at_end="restart")
    assert build_world(restart).supply(0) == Supply(30.0, False, 10.0)


def test_supply_of_an_absent_client_depends_on_collecting() -> None:
    half = even(arrivals=ConstantRate(1), availability=0.5)
    assert build_world(half).supply(0) == Supply(5.0, False, 5.0)
    collecting = even(arrivals=ConstantRate(1), availability=0.5, absent="collecting")
    assert build_world(collecting).supply(0) == Supply(10.0, False, 5.0)


def test_frozen_client_spreads_samples_over_its_expected_rounds() -> None:
    world = build_world(even(availability=0.5))
    assert sizes(arrival_lists(world, 0, 5)) == [0, 4, 4, 4, 4, 4]


def test_supply_of_a_historical_client_is_limited_by_its_capacity() -> None:
    world = build_world(even(arrivals=AtStart()), capacity=8)
    assert world.supply(0) == Supply(8.0, True, 10.0)
    assert build_world(even(historical=1.0), capacity=50).supply(0) == Supply(20.0, True, 10.0)


def test_rates_and_capacities_can_vary_between_clients() -> None:
    spec = Inflow(num_clients=120, partition=Even(), rate_spread=0.5, capacity_spread=0.5)
    world = build_world(spec, capacity=10_000)
    # The mean of log-normal factors is 1, their standard deviation 0.53.
    assert abs(world.rate_factors.mean() - 1) < 5 * 0.53 / 11
    assert np.log(world.rate_factors).std() == pytest.approx(0.5, rel=0.3)
    capacities = np.array([world.capacity(client) for client in range(120)])
    assert abs(capacities.mean() / 10_000 - 1) < 5 * 0.53 / 11
    assert not np.allclose(capacities / 10_000, world.rate_factors, rtol=0.01)


def test_zero_spread_gives_equal_rates_and_capacities() -> None:
    world = build_world(even())
    assert world.rate_factors.tolist() == [1.0] * 6
    assert world.capacities.tolist() == [8] * 6


def test_label_change_makes_labels_arrive_in_runs() -> None:
    labels_of = np.repeat(np.arange(4), 30)

    def runs(label_change: float) -> float:
        """Share of neighbours of the same class in all clients' streams."""
        spec = Inflow(num_clients=1, label_change=label_change, arrivals=ConstantRate(6))
        world = spec.build(Setting(labels_of, 4, 1, 8, 20, seed=0))
        rows = np.array(all_of(arrival_lists(world, 0, 20)))
        return float((labels_of[rows][1:] == labels_of[rows][:-1]).mean())

    assert runs(0.0) < 0.4, "a quarter, by chance"
    assert runs(1.0) > 0.7, "another class in every round of six samples"


def test_state_table_has_one_state_with_the_overall_label_mix() -> None:
    world = build_world(Inflow(num_clients=3, partition=Dirichlet(1.0, imbalance=0.5)))
    # 30, 15, 7 and 3 of 55.
    assert world.state_table.histograms[0] == pytest.approx(np.array([30, 15, 7, 3]) / 55)
    assert world.true_state_probs(2).tolist() == [1.0]
    weights = np.array([len(mine.rows) for mine in world.queues]) / 55
    assert weights @ world.mixes == pytest.approx(world.state_table.histograms[0])


def test_clients_are_those_of_the_data_only_with_the_partition_groups() -> None:
    assert build_world(Inflow(partition=Groups()), client=GROUP).has_clients_of_data
    assert not build_world(even(), client=GROUP).has_clients_of_data


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (Inflow(num_clients=121), "120 rows cannot be divided among 121 clients"),
        (Inflow(partition=Groups()), "partition=groups needs"),
        (Inflow(partition=Pachinko()), "pachinko needs data with coarse labels"),
        (Inflow(historical_data=0.5), "makes 0 of 20 clients historical"),
    ],
)
def test_unsuitable_data_are_rejected_when_the_world_is_built(spec: Inflow, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_world(spec)
