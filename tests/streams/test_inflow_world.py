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


def built(
    spec: Inflow,
    *,
    rounds: int = 10,
    ticks: int = 1,
    capacity: int = 8,
    seed: int = 0,
    group: Any = None,
) -> InflowWorld:
    return spec.build(Setting(LABELS, 4, ticks, capacity, rounds, seed, group=group))


def even(**changes: Any) -> Inflow:
    """Six clients with twenty samples each."""
    return Inflow(num_clients=6, partition=Even(), **changes)


def life(world: InflowWorld, client: int, rounds: int = 10) -> list[list[int]]:
    """What the client starts with, then what comes in every tick."""
    state, start = world.begin(client)
    came = [start.items.tolist()]
    for lived in range(rounds):
        state, arrivals = world.emit(state, client, lived)
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
    world = built(spec, ticks=ticks, seed=seed, group=GROUP)
    lives = [life(world, client) for client in range(6)]
    rows = [row for came in lives for part in came for row in part]
    assert len(set(rows)) == len(rows)
    for client, came in enumerate(lives):
        assert sum(sizes(came)) <= len(world.queues[client].rows)
    same = built(spec, ticks=ticks, seed=seed, group=GROUP)
    assert [life(same, client) for client in range(6)] == lives


@settings(max_examples=30, deadline=None)
@given(arrivals=st.sampled_from(PROCESSES), lived=st.integers(0, 12), seed=st.integers(0, 3))
def test_asking_changes_nothing(arrivals: Any, lived: int, seed: int) -> None:
    world = built(even(arrivals=arrivals, label_change=0.5, at_end="restart"), seed=seed)
    state, _ = world.begin(1)
    before = to_comparable(state)
    first = to_comparable(world.emit(state, 1, lived))
    assert to_comparable(state) == before
    assert to_comparable(world.emit(state, 1, lived)) == first


def test_historical_clients_have_everything_at_first_and_fresh_ones_nothing() -> None:
    world = built(even(historical=0.5))
    assert sizes(life(world, 2)) == [20] + [0] * 10
    assert sizes(life(world, 3)) == [0] + [2] * 10
    assert [world.supply(client).is_historical for client in range(6)] == [True] * 3 + [False] * 3


def test_all_samples_of_fresh_clients_have_come_when_the_run_is_over() -> None:
    world = built(even(historical=0.5), rounds=7)
    for client in range(6):
        came = all_of(life(world, client, 7))
        assert sorted(came) == sorted(world.queues[client].rows.tolist())


def test_arrivals_of_a_round_are_spread_over_its_ticks() -> None:
    world = built(even(arrivals=ConstantRate(5)), ticks=3)
    assert sizes(life(world, 0, 2)) == [0, 2, 2, 1, 2, 2, 1]


def test_when_all_have_come_there_is_silence_or_they_start_again() -> None:
    came = life(built(even(arrivals=ConstantRate(8))), 0, 4)
    assert sizes(came) == [0, 8, 8, 4, 0]
    again = life(built(even(arrivals=ConstantRate(8), at_end="restart")), 0, 5)
    assert sizes(again) == [0, 8, 8, 8, 8, 8]
    assert np.bincount(all_of(again)).tolist().count(2) == 20


def test_an_arrival_may_be_larger_than_the_memory() -> None:
    world = built(even(arrivals=Bursts(15, every=1)), capacity=3)
    assert sizes(life(world, 0, 2)) == [0, 15, 5]
    assert world.capacity(0) == 3


def test_memories_are_those_of_the_scenario_or_the_clients_own() -> None:
    scenario, own = (
        built(even(historical=0.5, capacity_of=whose), rounds=8) for whose in ("scenario", "own")
    )
    assert [scenario.capacity(client) for client in (0, 5)] == [8, 8]
    assert [own.capacity(client) for client in (0, 5)] == [20, 3]  # 2.5 per round


def test_a_client_without_data_is_here_but_empty() -> None:
    world = built(
        Inflow(num_clients=50, partition=Dirichlet(0.01), capacity_of="own", at_end="restart")
    )
    empty = next(n for n in range(50) if len(world.queues[n].rows) == 0)
    assert empty in world.present(0)
    assert sizes(life(world, empty)) == [0] * 11
    assert world.capacity(empty) == 1
    assert world.supply(empty) == Supply(0.0, False, 10.0)
    assert world.mixes[empty].tolist() == [0, 0, 0, 0]


def test_one_shot_clients_are_here_just_while_their_data_come() -> None:
    world = built(even(historical=0.34, arrivals=OneShot(width=2)))
    here = np.array([[client in world.present(rnd) for client in range(6)] for rnd in range(10)])
    assert here[:, :2].all(), "historical clients always are"
    assert here[:, 2:].sum(axis=0).tolist() == [2, 2, 2, 2]
    assert sorted(here[:, 2:].argmax(axis=0).tolist()) == [0, 2, 4, 6]
    assert world.availability.tolist() == [1, 1, 0.2, 0.2, 0.2, 0.2]
    assert world.supply(3) == Supply(20.0, False, 2.0)
    # It takes part in both of its rounds, and these are the first that it lives.
    assert sizes(life(world, 3, 3)) == [0, 10, 10, 0]


def test_one_shot_clients_that_collect_get_their_data_in_those_rounds() -> None:
    world = built(even(arrivals=OneShot(), absent="collecting"))
    for client in range(6):
        (rnd,) = (rnd for rnd in range(10) if client in world.present(rnd))
        assert sizes(life(world, client)) == [0, *(20 * (r == rnd) for r in range(10))]


def test_a_stay_longer_than_the_run_is_all_of_it() -> None:
    world = built(even(arrivals=OneShot(width=20)))
    assert world.availability.tolist() == [1.0] * 6
    assert world.supply(0) == Supply(10.0, False, 10.0)


def test_what_a_client_will_have_had_is_what_it_owns_or_what_comes() -> None:
    assert built(even()).supply(0) == Supply(20.0, False, 10.0)
    assert built(even(arrivals=ConstantRate(1))).supply(0) == Supply(10.0, False, 10.0)
    assert built(even(arrivals=Poisson(3))).supply(0) == Supply(20.0, False, 10.0)
    restart = even(arrivals=Poisson(3), at_end="restart")
    assert built(restart).supply(0) == Supply(30.0, False, 10.0)


def test_what_an_absent_client_will_have_had_depends_on_whether_it_collects() -> None:
    half = even(arrivals=ConstantRate(1), availability=0.5)
    assert built(half).supply(0) == Supply(5.0, False, 5.0)
    collecting = even(arrivals=ConstantRate(1), availability=0.5, absent="collecting")
    assert built(collecting).supply(0) == Supply(10.0, False, 5.0)


def test_a_frozen_client_spreads_its_samples_over_the_rounds_it_is_expected_in() -> None:
    world = built(even(availability=0.5))
    assert sizes(life(world, 0, 5)) == [0, 4, 4, 4, 4, 4]


def test_a_historical_client_has_had_no_more_than_it_can_hold() -> None:
    world = built(even(arrivals=AtStart()), capacity=8)
    assert world.supply(0) == Supply(8.0, True, 10.0)
    assert built(even(historical=1.0), capacity=50).supply(0) == Supply(20.0, True, 10.0)


def test_rates_and_memories_may_differ_from_client_to_client() -> None:
    spec = Inflow(num_clients=120, partition=Even(), rate_spread=0.5, capacity_spread=0.5)
    world = built(spec, capacity=10_000)
    # The mean of log-normal factors is 1, their standard deviation 0.53.
    assert abs(world.rate_factors.mean() - 1) < 5 * 0.53 / 11
    assert np.log(world.rate_factors).std() == pytest.approx(0.5, rel=0.3)
    capacities = np.array([world.capacity(client) for client in range(120)])
    assert abs(capacities.mean() / 10_000 - 1) < 5 * 0.53 / 11
    assert not np.allclose(capacities / 10_000, world.rate_factors, rtol=0.01)


def test_without_a_spread_all_are_the_same() -> None:
    world = built(even())
    assert world.rate_factors.tolist() == [1.0] * 6
    assert world.capacities.tolist() == [8] * 6


def test_the_label_mix_stays_unless_it_is_to_change() -> None:
    labels_of = np.repeat(np.arange(4), 30)

    def runs(label_change: float) -> float:
        """Share of neighbours of the same class in all clients' streams."""
        spec = Inflow(num_clients=1, label_change=label_change, arrivals=ConstantRate(6))
        world = spec.build(Setting(labels_of, 4, 1, 8, 20, seed=0))
        rows = np.array(all_of(life(world, 0, 20)))
        return float((labels_of[rows][1:] == labels_of[rows][:-1]).mean())

    assert runs(0.0) < 0.4, "a quarter, by chance"
    assert runs(1.0) > 0.7, "another class in every round of six samples"


def test_the_book_has_one_state_with_all_that_clients_have() -> None:
    world = built(Inflow(num_clients=3, partition=Dirichlet(1.0, imbalance=0.5)))
    # 30, 15, 7 and 3 of 55.
    assert world.state_table.histograms[0] == pytest.approx(np.array([30, 15, 7, 3]) / 55)
    assert world.true_state_probs(2).tolist() == [1.0]
    weights = np.array([len(mine.rows) for mine in world.queues]) / 55
    assert weights @ world.mixes == pytest.approx(world.state_table.histograms[0])


def test_clients_are_groups_only_if_they_are_not_dealt() -> None:
    assert built(Inflow(partition=Groups()), group=GROUP).clients_are_groups
    assert not built(even(), group=GROUP).clients_are_groups


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (Inflow(num_clients=121), "120 rows cannot be divided among 121 clients"),
        (Inflow(partition=Groups()), "partition=groups needs"),
        (Inflow(partition=Pachinko()), "pachinko needs data with coarse labels"),
        (Inflow(historical_data=0.5), "makes 0 of 20 clients historical"),
    ],
)
def test_data_that_do_not_fit_are_refused_when_the_world_is_built(
    spec: Inflow, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        built(spec)
