from __future__ import annotations

from dataclasses import replace

import numpy as np

from thalweg.streams import HasViews, Setting, Steps
from thalweg.streams.steps_world import StepsWorld

LABELS = np.arange(120) % 3


def build(spec: Steps, rounds: int = 12, ticks: int = 2) -> StepsWorld:
    return spec.build(Setting(LABELS, 3, ticks=ticks, capacity=5, rounds=rounds, seed=1))


SPEC = Steps(num_clients=6, rounds_per_step=4, concepts=((0, 1), (0, 1, 2)), rotations=(0.0, 90.0))


def test_whole_shard_arrives_in_the_first_tick_of_a_step() -> None:
    world = build(SPEC)
    assert len(world.begin(2)[1].items) == 0
    for stream_round in range(12):
        _, arrivals = world.emit(None, 2, stream_round)
        sizes = [len(arrival.items) for arrival in arrivals]
        assert sizes == ([20, 0] if stream_round % 4 == 0 else [0, 0])


def test_arrival_rows_come_from_the_shard_in_the_view_of_the_step() -> None:
    world = build(SPEC)
    for step in range(3):
        for client in range(6):
            items = world.emit(None, client, 4 * step)[1][0].items
            shard = world.shards[world.shard_ids[step, client]]
            assert (items % 120).tolist() == shard.tolist()
            assert set((items // 120).tolist()) == {int(world.views_at(4 * step)[client])}


def test_views_and_concepts_are_constant_within_a_step() -> None:
    world = build(SPEC)
    assert isinstance(world, HasViews)
    for rnd in range(12):
        assert (world.views_at(rnd) == world.views_at(rnd - rnd % 4)).all()
    assert (world.views_at(99) == world.views_at(11)).all(), "after the run, the last one"
    clocks = np.array([0, 4, 8, 0, 4, 8])
    expected = [world.views_at(int(clock))[client] for client, clock in enumerate(clocks)]
    assert world.views_at(clocks).tolist() == expected


def test_drift_events_occur_where_concepts_or_rotations_change() -> None:
    world = build(SPEC)
    found = world.drift_events()
    for rnd in (4, 8):
        before, after = world.concepts_at(rnd - 1), world.concepts_at(rnd)
        real = [event.client for event in found if event[::2] == (rnd, "real")]
        assert real == np.flatnonzero(before != after).tolist()
        virtual = [event.client for event in found if event[::2] == (rnd, "virtual")]
        assert virtual == list(range(6)), "the angle is another at every step"
    assert {event.rnd for event in found} == {4, 8}


def test_steps_memory_holds_the_current_and_the_previous_shard() -> None:
    world = build(SPEC)
    assert world.capacity(0) == 40
    assert world.supply(0).total == 60
    assert world.collects_when_absent
    assert world.present(3).tolist() == list(range(6))
    assert len(world.state_table.importance) == 1


def test_label_mixes_follow_the_relabelled_classes() -> None:
    world = build(SPEC)
    for client in range(6):
        seen = []
        for step in range(3):
            labels = LABELS[world.shards[world.shard_ids[step, client]]]
            view = world.views[world.views_at(4 * step)[client]]
            seen.append(view.label_map(3)[labels])
        expected = np.bincount(np.concatenate(seen), minlength=3) / 60
        assert np.allclose(world.mixes[client], expected)
    assert np.allclose(world.state_table.histograms[0], world.mixes.mean(axis=0))


def test_a_part_of_the_shard_arrives_drawn_anew_in_each_step() -> None:
    spec = replace(SPEC, concepts=((0,),) * 3, rotations=(0.0, 90.0, 0.0), num_clients=1)
    world, whole = build(replace(spec, train_share=0.85)), build(spec)
    arrivals = [world.emit(None, 0, 4 * step)[1][0].items % 120 for step in range(3)]
    assert [len(rows) for rows in arrivals] == [102] * 3, "0.85 * 120"
    for rows in arrivals:
        assert set(rows.tolist()) < set(whole.emit(None, 0, 0)[1][0].items.tolist())
        assert len(np.unique(rows)) == len(rows)
    parts = {frozenset(rows.tolist()) for rows in arrivals}
    assert len(parts) == 3, "the client has the same shard in all steps"
    assert (world.emit(None, 0, 0)[1][0].items == arrivals[0]).all(), "the same draw each time"
    assert (world.capacity(0), whole.capacity(0)) == (204, 240)
    assert (world.supply(0).total, whole.supply(0).total) == (306, 360)
    assert world.supplies().total.tolist() == [306]
    counts = np.bincount(LABELS[np.concatenate(arrivals)], minlength=3)
    assert np.allclose(world.mixes[0], counts / 306)


def test_the_part_of_a_shard_is_rounded_down_and_not_empty() -> None:
    spec = replace(SPEC, concepts=((0,),), rotations=(0.0,))
    world = build(replace(spec, num_clients=40, train_share=0.9))
    assert {len(shard) for shard in world.shards} == {3}
    assert len(world.emit(None, 7, 0)[1][0].items) == 2
    world = build(replace(spec, num_clients=120, train_share=0.1))
    assert len(world.emit(None, 7, 0)[1][0].items) == 1


def test_single_client_has_one_concept_at_a_time() -> None:
    world = build(Steps(num_clients=1, rounds_per_step=2, concepts=((1,), (2,)), rotations=(0.0,)))
    assert [int(world.concepts_at(rnd)[0]) for rnd in range(6)] == [1, 1, 2, 2, 1, 1]
    assert len(world.emit(None, 0, 2)[1][0].items) == 120


def test_class_without_samples_is_supported() -> None:
    labels = np.arange(120) % 2  # of three classes
    for dirichlet in (None, 0.5):
        spec = Steps(
            num_clients=4,
            rounds_per_step=1,
            rotations=(0.0,),
            dirichlet=dirichlet,
            concepts=((0, 1),),
        )
        world = spec.build(Setting(labels, 3, ticks=1, capacity=5, rounds=4, seed=1))
        assert np.allclose(world.mixes.sum(axis=1), 1)
        concepts = np.stack([world.concepts_at(rnd) for rnd in range(4)])
        for client in range(4):
            sees_two = (concepts[:, client] == 1).any()  # class 0 is relabelled as 2
            assert (world.mixes[client, 2] > 0) == sees_two
