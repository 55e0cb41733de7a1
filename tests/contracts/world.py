"""The contract of worlds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from contracts.checkpoint import round_trip, to_comparable
from thalweg.core.types import Arrival, Floats, Ints, Supply
from thalweg.core.views import View, concepts_of
from thalweg.streams import Drift, HasViews, Setting, World, WorldSpec, add_drift

LABELS = np.arange(1200) % 4
NUM_CLASSES = 4
ROUNDS = 1000


@dataclass(frozen=True)
class DriftingSpec:
    """A world with a drift, as a scenario has it."""

    world: WorldSpec
    drift: Drift

    def build(self, setting: Setting) -> World:
        return add_drift(self.world.build(setting), self.drift, setting)


def check_world(
    spec: WorldSpec,
    *,
    labels: Ints = LABELS,
    num_classes: int = NUM_CLASSES,
    client: Ints | None = None,
    time: Floats | None = None,
    coarse: Ints | None = None,
    ticks: int = 3,
    capacity: int = 20,
) -> None:
    """Build the world twice in the same setting and compare their results."""
    setting = Setting(labels, num_classes, ticks, capacity, ROUNDS, 5, client, time, coarse)

    def build(seed: int = 5) -> World:
        return spec.build(replace(setting, seed=seed))

    world, again = build(), build()
    assert world.num_clients >= 1, "there is at least one client"
    assert world.ticks == ticks, "the number of ticks is that of the setting"
    _check_states(world, num_classes)
    _check_presence(world, again)
    _check_data(world, again, num_classes)
    some, num_rows = range(min(world.num_clients, 5)), len(labels)
    if isinstance(world, HasViews):
        assert isinstance(again, HasViews)
        _check_views(world, again, world.num_clients, num_classes)
        num_rows *= len(world.views)
    for client in some:
        _check_stream(world, again, client, num_rows)
    assert _first_rounds(world, some) == _first_rounds(world, reversed(some)), (
        "the order of clients has no effect"
    )
    if world.availability.min() < 1:
        other = build(seed=6)
        differs = any(world.present(r).tolist() != other.present(r).tolist() for r in range(200))
        assert differs, "presence depends on the seed"


def _check_states(world: World, num_classes: int) -> None:
    num_states = world.state_table.num_states
    assert world.state_table.histograms.shape == (num_states, num_classes), "a class mix per state"
    _check_distributions(world.state_table.histograms, "class mixes")
    assert world.state_table.importance.shape == (num_states,), "an importance per state"
    _check_distributions(world.state_table.importance, "importances")
    for client in range(world.num_clients):
        assert world.true_state_probs(client).shape == (num_states,), "a probability per state"
        _check_distributions(
            world.true_state_probs(client), f"state probabilities of client {client}"
        )


def _check_distributions(rows: Floats, what: str) -> None:
    assert (rows >= 0).all(), f"{what} are not negative"
    assert abs(rows.sum(axis=-1) - 1).max(initial=0) < 1e-9, f"{what} sum to one"


def _check_presence(world: World, again: World) -> None:
    availability = world.availability
    assert availability.shape == (world.num_clients,), "an availability per client"
    assert availability.min() > 0, "availability is positive"
    assert availability.max() <= 1, "availability is at most one"
    assert isinstance(world.collects_when_absent, bool)
    times_present = np.zeros(world.num_clients)
    for rnd in range(ROUNDS):
        here = world.present(rnd)
        assert here.dtype == np.int64, "ids are whole numbers"
        assert (np.diff(here) > 0).all(), "ids are ascending and different"
        assert ((here >= 0) & (here < world.num_clients)).all(), "ids are in range"
        times_present[here] += 1
        if rnd % 100 == 0:
            assert (again.present(rnd) == here).all(), "same seed, same clients"
            assert (world.present(rnd) == here).all(), "equal arguments give equal results"
    # At most 0.016 standard deviation for each client.
    assert abs(times_present / ROUNDS - availability).max() < 0.08, (
        "clients are present as often as declared"
    )


def _check_data(world: World, again: World, num_classes: int) -> None:
    clients = range(world.num_clients)
    assert world.mixes.shape == (world.num_clients, num_classes), "a label mix per client"
    assert to_comparable(again.mixes) == to_comparable(world.mixes), "same seed, same mixes"
    supplies = [world.supply(client) for client in clients]
    assert [again.supply(client) for client in clients] == supplies, "same seed, same supply"
    has_data = np.array([supply.total > 0 for supply in supplies])
    _check_distributions(world.mixes[has_data], "label mixes")
    assert isinstance(world.has_clients_of_data, bool)
    for client, supply in zip(clients, supplies, strict=True):
        capacity = world.capacity(client)
        assert isinstance(capacity, int), "a capacity is a whole number"
        assert capacity >= 1, "a capacity is at least one"
        assert isinstance(supply, Supply)
        assert 0 <= supply.total < np.inf, "a finite number of samples"
        assert isinstance(supply.is_historical, bool)
        expected = ROUNDS * world.availability[client]
        assert abs(supply.rounds - expected) < 1e-6 * ROUNDS, (
            "rounds of the supply agree with the availability"
        )


def _check_views(world: HasViews, again: HasViews, num_clients: int, num_classes: int) -> None:
    assert world.views[0] == View(), "the first view is plain"
    assert len(set(world.views)) == len(world.views), "no view twice"
    assert all(view == view.resolve(num_classes) for view in world.views), "views are resolved"
    assert again.views == world.views, "same seed, same views"
    assert again.drift_events() == world.drift_events(), "same seed, same drifts"
    concepts, changes = concepts_of(world.views, num_classes), world.drift_events()
    assert changes == sorted(set(changes)), "drifts are ordered and different"
    turned = {(event.rnd, event.client) for event in changes if event.kind != "label"}
    before = world.views_at(0)
    for rnd in range(ROUNDS):
        views = world.views_at(rnd)
        assert views.shape == (num_clients,), "a view per client"
        assert views.min() >= 0, "views are not negative"
        assert views.max() < len(world.views), "views are in range"
        assert (again.views_at(rnd) == views).all(), "same seed, same views"
        assert (world.concepts_at(rnd) == concepts[views]).all(), "concepts are those of the views"
        # The event of a gradual drift is at its start; the view changes half-way.
        for client in np.flatnonzero(views != before).tolist():
            assert any(when <= rnd and who == client for when, who in turned), (
                "each change of a view is in the drift events"
            )
        before = views
    own_rounds = np.arange(num_clients) % 7
    mine = [world.views_at(int(own_round))[client] for client, own_round in enumerate(own_rounds)]
    assert world.views_at(own_rounds).tolist() == mine, "each client may have another round number"
    assert {(event.rnd, event.client) for event in changes} <= {
        (rnd, client) for rnd in range(ROUNDS) for client in range(num_clients)
    }, "drifts of clients, in rounds of the run"


def _check_stream(world: World, again: World, client: int, num_rows: int) -> None:
    state, start = world.begin(client)
    _check_arrival(start, world, client, num_rows)
    assert to_comparable(world.begin(client)) == to_comparable((state, start)), (
        "equal arguments give equal results"
    )
    assert to_comparable(again.begin(client)) == to_comparable((state, start)), (
        "same seed, same start"
    )
    is_historical = world.supply(client).is_historical
    for stream_round in range(4):
        before = to_comparable(state)
        following, arrivals = world.emit(state, client, stream_round)
        assert to_comparable(state) == before, "the old state does not change"
        assert len(arrivals) == world.ticks, "one arrival per tick"
        for arrival in arrivals:
            _check_arrival(arrival, world, client, num_rows)
            assert not (is_historical and len(arrival.items)), (
                "historical clients receive no samples in rounds"
            )
        expected_result = to_comparable((following, arrivals))
        assert to_comparable(world.emit(state, client, stream_round)) == expected_result, (
            "equal arguments give equal results"
        )
        restored = round_trip(state, fresh=world.begin(client)[0])
        assert to_comparable(again.emit(restored, client, stream_round)) == expected_result, (
            "a checkpoint restores the state"
        )
        state = following


def _check_arrival(arrival: Arrival, world: World, client: int, num_rows: int) -> None:
    assert arrival.items.ndim == 1, "rows in order of arrival"
    assert arrival.items.dtype == np.int64, "rows are whole numbers"
    assert ((arrival.items >= 0) & (arrival.items < num_rows)).all(), "rows of the data set"
    assert isinstance(arrival.state, int), "the state is a whole number"
    assert world.true_state_probs(client)[arrival.state] > 0, (
        "only states that the client can reach"
    )


def _first_rounds(world: World, clients: Any) -> dict[int, Any]:
    """The first two rounds of each client."""
    rounds_by_client = {}
    for client in clients:
        state, start = world.begin(client)
        state, first = world.emit(state, client, 0)
        rounds_by_client[client] = to_comparable((start, first, world.emit(state, client, 1)))
    return rounds_by_client
