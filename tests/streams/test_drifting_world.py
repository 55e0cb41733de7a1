from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.core.transforms import Rotated
from thalweg.core.views import View
from thalweg.streams import (
    Drift,
    DriftingWorld,
    Gradual,
    HasViews,
    Inflow,
    LatentStates,
    RecurringDrift,
    Replay,
    Setting,
    Steps,
    Sudden,
    Timeline,
    World,
    WorldSpec,
    add_drift,
    build_timeline,
)

SETTING = Setting(np.arange(240) % 3, 3, ticks=2, capacity=8, rounds=10, seed=4)
QUIET = Replay(num_clients=4, arrivals=5, availability=1.0, at_end="restart")
LATENT = LatentStates(num_clients=4, clusters=(0.5, 10.0), states_per_cluster=3, reachable=3)


def build(spec: WorldSpec, drift: Drift | None, setting: Setting = SETTING) -> World:
    return add_drift(spec.build(setting), drift, setting)


def items(world: World, client: int, stream_round: int) -> list[int]:
    state, start = world.begin(client)
    found = start.items
    for rnd in range(stream_round + 1):
        state, arrivals = world.emit(state, client, rnd)
        found = np.concatenate([arrival.items for arrival in arrivals])
    return found.tolist()  # type: ignore[no-any-return]


def test_world_without_drift_is_returned_unchanged() -> None:
    world = QUIET.build(SETTING)
    assert add_drift(world, None, SETTING) is world
    assert not isinstance(world, HasViews)


def test_items_encode_the_row_and_the_view_of_the_round() -> None:
    plain, world = build(QUIET, None), build(QUIET, Sudden(at=2))
    assert isinstance(world, HasViews)
    assert world.views == (View(), View(labels=(2, 1, 0)))
    assert items(world, 1, 1) == items(plain, 1, 1)
    assert items(world, 1, 2) == [240 + item for item in items(plain, 1, 2)]


@settings(max_examples=20, deadline=None)
@given(
    stream_round=st.integers(0, 9),
    start=st.integers(0, 5),
    length=st.integers(0, 5),
    share=st.sampled_from([0.3, 1.0]),
)
def test_items_of_every_view_map_back_to_rows_of_the_inner_world(
    stream_round: int, start: int, length: int, share: float
) -> None:
    drift = Gradual(start, start + length, View(Rotated(40.0), 2), share)
    for spec in (QUIET, LATENT, Inflow(num_clients=4, historical=0.5)):
        plain, world = build(spec, None), build(spec, drift)
        for client in range(4):
            seen = np.array(items(world, client, stream_round), dtype=int)
            assert (seen % 240).tolist() == items(plain, client, stream_round)
            assert set((seen // 240).tolist()) <= {0, 1}


def test_gradual_drift_draws_the_view_of_each_sample() -> None:
    many = replace(QUIET, arrivals=400, num_clients=2)
    world = build(many, Gradual(start=0, until=3))
    shares = [np.mean(np.array(items(world, 0, stream_round)) >= 240) for stream_round in range(5)]
    assert shares == pytest.approx(
        [0.25, 0.5, 0.75, 1.0, 1.0], abs=0.07
    )  # 2 sd of 800 draws: 0.035
    assert items(world, 0, 1) == items(world, 0, 1), "the same question has the same answer"
    places = [np.array(items(world, client, 1)) >= 240 for client in range(2)]
    assert (places[0] != places[1]).any(), "clients draw for themselves"


def test_initial_samples_use_the_view_of_round_0() -> None:
    world = build(Inflow(num_clients=2, historical=1.0), Sudden(at=0))
    _, start = world.begin(0)
    assert (start.items >= 240).all()
    later = build(Inflow(num_clients=2, historical=1.0), Sudden(at=1))
    assert (later.begin(0)[1].items < 240).all()


def test_label_mixes_follow_the_relabelled_classes() -> None:
    skewed = replace(SETTING, labels=np.repeat([0, 1, 2], [120, 60, 60]))
    turned = build(replace(QUIET, num_clients=1), Sudden(at=4, to=View(labels=2)), skewed)
    # (1/2, 1/4, 1/4) for four rounds, then (1/4, 1/2, 1/4): labels go to the next one.
    assert turned.mixes[0].tolist() == pytest.approx([0.35, 0.4, 0.25])


def test_label_mix_of_a_frozen_client_counts_only_its_own_rounds() -> None:
    skewed = replace(SETTING, labels=np.repeat([0, 1, 2], [120, 60, 60]))
    spec = Replay(num_clients=1, availability=0.5)
    frozen = build(spec, Sudden(at=5), skewed)
    assert frozen.mixes[0].tolist() == pytest.approx([0.5, 0.25, 0.25]), "it lives five rounds"
    collecting = build(replace(spec, absent="collecting"), Sudden(at=5), skewed)
    assert collecting.mixes[0].tolist() == pytest.approx([0.375, 0.25, 0.375])


def test_label_mix_of_historical_clients_does_not_drift() -> None:
    skewed = replace(SETTING, labels=np.repeat([0, 1, 2], [120, 60, 60]))
    spec = Inflow(num_clients=1, historical=1.0)
    assert build(spec, Sudden(at=5), skewed).mixes[0].tolist() == [0.5, 0.25, 0.25]


def test_concepts_differ_only_where_labels_differ() -> None:
    views = (View(), View(Rotated(90.0)), View(labels=1), View(Rotated(90.0), 1))
    world = build(QUIET, RecurringDrift(period=1, views=views))
    assert isinstance(world, HasViews)
    assert [world.views_at(rnd)[0] for rnd in range(5)] == [0, 1, 2, 3, 0]
    assert [world.concepts_at(rnd)[0] for rnd in range(5)] == [0, 0, 1, 1, 0]
    kinds = [event.kind for event in world.drift_events() if event.client == 0][:6]
    assert kinds == ["virtual", "real", "virtual", "virtual", "real", "virtual"]


def test_drifting_world_delegates_everything_else_to_the_inner_world() -> None:
    plain, world = build(LATENT, None), build(LATENT, Sudden())
    assert isinstance(world, DriftingWorld)
    assert (world.num_clients, world.ticks) == (4, 2)
    assert world.state_table is plain.state_table or np.array_equal(
        world.state_table.histograms, plain.state_table.histograms
    )
    assert world.supply(2) == plain.supply(2)
    assert world.present(3).tolist() == plain.present(3).tolist()
    assert world.capacity(0) == plain.capacity(0)
    assert world.has_clients_of_data == plain.has_clients_of_data


def test_drift_on_a_world_with_its_own_drifts_is_rejected() -> None:
    steps = Steps(num_clients=4, rotations=(0.0,), concepts=((0, 1),))
    with pytest.raises(ConfigError, match=r"StepsWorld has views of its own.*\(drift=None\)"):
        build(steps, Sudden())


def test_timeline_with_the_wrong_number_of_clients_is_rejected() -> None:
    class ForTwo:
        def timeline(self, num_clients: int, setting: Setting) -> Timeline:
            return build_timeline([], 2, setting.num_classes)

    with pytest.raises(ConfigError, match="must return a timeline for 4 clients, got one for 2"):
        build(QUIET, ForTwo())
