"""All clients of a world as one learner."""

import numpy as np
import pytest

from thalweg.core.types import Arrival, Supply
from thalweg.streams import MergedWorld, StateTable, Timetable


class TwoClients:
    """Client n starts with row 100 + n, and receives the rows 10 r + n, twice, in its round r."""

    num_clients, ticks, has_clients_of_data = 2, 2, False
    mixes = np.array([[1.0, 0.0], [0.0, 1.0]])
    availability = np.array([1.0, 0.5])
    state_table = StateTable(np.eye(2), np.array([0.25, 0.75]))

    def __init__(self, collects_when_absent):
        self.collects_when_absent = collects_when_absent

    def present(self, rnd):
        return np.array([0, 1] if rnd % 2 == 1 else [0])  # client 1 only in odd rounds

    def capacity(self, client):
        return 3 + client

    def supply(self, client):
        return Supply(10.0, False, 2.0 + client)

    def true_state_probs(self, client):
        return np.array([0.5, 0.5])

    def begin(self, client):
        return 0, Arrival(np.array([100 + client]), 0)

    def emit(self, state, client, stream_round):
        rows = Arrival(np.array([10 * stream_round + client]), client)
        return state + 1, [rows, rows]


def emit_rounds(world, rounds):
    state, start = world.begin(0)
    arrivals = []
    for rnd in range(rounds):
        state, ticks = world.emit(state, 0, rnd)
        arrivals.append(ticks)
    return state, start, arrivals


def test_the_learner_receives_the_arrivals_of_the_clients_that_are_present():
    world = MergedWorld(TwoClients(collects_when_absent=False))
    state, start, arrivals = emit_rounds(world, 2)
    assert start.items.tolist() == [100, 101]
    assert [tick.items.tolist() for tick in arrivals[0]] == [[0], [0]]
    assert [tick.items.tolist() for tick in arrivals[1]] == [[10, 1], [10, 1]]
    assert arrivals[1][0].owners.tolist() == [0, 1]
    assert state.stream_rounds.tolist() == [2, 1], "the stream of client 1 stops while it is absent"
    assert state.num_collected == 2 + 2 + 4


def test_samples_that_arrived_in_absence_are_delivered_later_and_not_tested():
    world = MergedWorld(TwoClients(collects_when_absent=True))
    _, _, arrivals = emit_rounds(world, 2)
    first, second = arrivals[1]
    assert first.items.tolist() == [10, 1, 1, 11]
    assert first.owners.tolist() == [0, -1, -1, 1]
    assert second.items.tolist() == [10, 11]


def test_a_client_that_joins_later_brings_its_first_samples():
    stays = np.array([[0, 0, 4], [1, 1, 4]]).T  # client 1 joins in round 1
    world = MergedWorld(TwoClients(collects_when_absent=False), Timetable(2, 4, *stays))
    _, start, arrivals = emit_rounds(world, 2)
    assert start.items.tolist() == [100]
    assert arrivals[1][0].items.tolist() == [10, 101, 1]
    assert arrivals[1][0].owners.tolist() == [0, -1, 1]


def test_the_memory_is_as_large_as_those_of_all_clients():
    world = MergedWorld(TwoClients(collects_when_absent=False))
    assert world.capacity(0) == 3 + 4
    assert world.present_share(0) == pytest.approx(3 / 7)
    assert world.present_share(1) == 1
    assert world.supply(0) == Supply(20.0, False, 3.0)


def test_the_learner_is_absent_in_rounds_without_clients():
    timetable = Timetable(2, 4, np.array([0]), np.array([1]), np.array([4]))
    world = MergedWorld(TwoClients(collects_when_absent=False), timetable)
    assert world.present(0).tolist() == []
    assert world.present(1).tolist() == [0]
    _, _, arrivals = emit_rounds(world, 1)
    assert [len(tick.items) for tick in arrivals[0]] == [0, 0]


def test_there_is_one_latent_state_with_the_mean_histogram():
    table = MergedWorld(TwoClients(collects_when_absent=False)).state_table
    assert table.histograms.tolist() == [[0.25, 0.75]]
    assert table.num_states == 1
