from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thalweg.core.config import build as build_part
from thalweg.core.config import to_dict
from thalweg.core.errors import ConfigError
from thalweg.core.transforms import Plain, Rotated
from thalweg.streams import WORLDS, Setting, Steps
from thalweg.streams.steps_world import StepsWorld

LABELS = np.arange(1207) % 10


def build(spec: Steps, rounds: int = 240, seed: int = 1, labels: Any = LABELS) -> StepsWorld:
    return spec.build(Setting(labels, 10, ticks=1, capacity=5, rounds=rounds, seed=seed))


def test_default_schedule_matches_the_paper() -> None:
    world = build(Steps())
    steps = [40 * step for step in range(6)]
    clients = [np.bincount(world.concepts_at(rnd)).tolist() for rnd in steps]
    assert clients == [[30, 30], [20, 20, 20], *[[15, 15, 15, 15]] * 4]
    angles = [{world.views[view].transform for view in world.views_at(rnd)} for rnd in steps]
    assert angles == [{Plain()}, {Rotated(120.0)}, {Rotated(240.0)}] * 2
    assert len(world.views) == 12
    labels = [view.labels for view in world.views[:4]]
    assert labels[0] is None
    assert labels[1] == tuple(9 - y for y in range(10))
    assert labels[2] == tuple((y + 1) % 10 for y in range(10))
    assert labels[3] == tuple((y + 2) % 10 for y in range(10))


def test_shards_are_assigned_as_in_the_paper() -> None:
    world = build(Steps())
    assert {len(shard) for shard in world.shards} == {1207 // 60}
    rows = np.concatenate(world.shards)
    assert len(np.unique(rows)) == len(rows), "no sample is in two shards"
    dealt = [Counter(mine.tolist()) for mine in world.shard_ids]
    assert dealt[0] == Counter(dict.fromkeys(range(30), 2)), "shards 0 to 29 twice"
    assert set(dealt[1]) == set(range(45))
    for concept in range(3):
        own = range(15 * concept, 15 * concept + 15)
        assert sorted(dealt[1][shard] for shard in own) == [1] * 10 + [2] * 5, "5 repeats"
    assert dealt[2:] == [Counter(range(60))] * 4
    for mine, rnd in zip(world.shard_ids, range(0, 240, 40), strict=True):
        assert (mine // 15 == world.concepts_at(rnd)).all(), "a shard belongs to a concept"


def test_shard_permutations_differ_between_steps_and_seeds() -> None:
    world = build(Steps(), rounds=400)
    assert not any(
        (one == other).all()
        for one, other in zip(world.shard_ids[2:], world.shard_ids[3:], strict=False)
    )
    assert (build(Steps(), rounds=400).shard_ids == world.shard_ids).all()
    assert (build(Steps(), rounds=120).shard_ids == world.shard_ids[:3]).all(), (
        "a shorter run is its beginning"
    )
    assert (build(Steps(), seed=2).shard_ids != world.shard_ids[:6]).any()


def test_longer_run_repeats_the_last_three_steps() -> None:
    spec = Steps()
    angles = [spec.step_settings(step)[1] for step in range(9)]
    assert angles == [0, 120, 240] * 3
    short = Steps(concepts=((0,), (1,)), rotations=(0.0,))
    assert [short.step_settings(step)[0] for step in range(5)] == [(0,), (1,), (0,), (1,), (0,)]
    last = replace(short, cycle=1)
    assert [last.step_settings(step)[0] for step in range(4)] == [(0,), (1,), (1,), (1,)]


@settings(max_examples=30, deadline=None)
@given(
    num_clients=st.integers(1, 30),
    stay=st.sampled_from([0.0, 0.4, 1.0]),
    dirichlet=st.sampled_from([None, 0.2, 5.0]),
    steps=st.lists(st.sets(st.integers(0, 5), min_size=1), min_size=1, max_size=4),
)
def test_concepts_have_equal_client_counts_and_valid_shards(
    num_clients: int, stay: float, dirichlet: float | None, steps: list[set[int]]
) -> None:
    concepts = tuple(tuple(sorted(step)) for step in steps)
    spec = Steps(num_clients, 2, concepts, (0.0,), stay_probability=stay, dirichlet=dirichlet)
    world = build(spec, rounds=2 * len(steps))
    rows = np.concatenate(world.shards)
    assert len(np.unique(rows)) == len(rows)
    names = np.array(spec.all_concepts)
    known = names if 0 in names else np.append(0, names)  # the plain view comes first
    for step, wanted in enumerate(concepts):
        here = Counter(known[world.concepts_at(2 * step)].tolist())
        assert set(here) <= set(wanted)
        sizes = [here[concept] for concept in wanted]
        assert sum(sizes) == num_clients
        assert max(sizes) - min(sizes) <= 1
        if len(wanted) == len(names) and num_clients >= len(names):
            assert len(set(world.shard_ids[step].tolist())) >= num_clients - len(names)


def test_stay_probability_one_keeps_the_concept_of_every_client() -> None:
    all_four = ((0, 1, 2, 3),) * 6
    spec = Steps(concepts=all_four, rotations=(0.0,), stay_probability=1.0)
    world = build(spec)
    assert all((world.concepts_at(rnd) == world.concepts_at(0)).all() for rnd in range(240))
    assert world.drift_events() == []
    assert (world.shard_ids[0] != world.shard_ids[1]).any(), "shards are others all the same"
    often = build(replace(spec, stay_probability=0.8))
    stayed = np.mean(
        [often.concepts_at(40 * s) == often.concepts_at(40 * s - 1) for s in range(1, 6)]
    )
    seldom = build(replace(spec, stay_probability=0.0))
    chance = np.mean(
        [seldom.concepts_at(40 * s) == seldom.concepts_at(40 * s - 1) for s in range(1, 6)]
    )
    assert stayed > 0.75
    assert chance < 0.4
    grows = build(Steps(stay_probability=1.0))
    assert np.bincount(grows.concepts_at(40)).tolist() == [20, 20, 20], "there is no room for all"


def test_dirichlet_gives_shards_different_label_mixes() -> None:
    world = build(Steps(dirichlet=0.1, num_clients=10))
    even = build(Steps(num_clients=10))
    for built, low, high in ((world, 0.5, 1.0), (even, 0.0, 0.3)):
        largest = [np.bincount(LABELS[shard]).max() / len(shard) for shard in built.shards]
        assert low < np.mean(largest) < high
    assert sum(len(shard) for shard in world.shards) == len(LABELS)
    assert world.capacity(3) == 2 * max(len(shard) for shard in world.shards)
    kinds = {event.kind for event in world.drift_events()}
    assert kinds == {"real", "virtual", "label"}
    assert {event.kind for event in even.drift_events()} == {"real", "virtual"}


def test_shard_size_can_be_limited() -> None:
    world = build(Steps(num_clients=10, shard_size=30))
    assert {len(shard) for shard in world.shards} == {30}
    assert world.capacity(0) == 60
    mixed = build(Steps(num_clients=10, shard_size=30, dirichlet=0.5))
    assert sum(len(shard) for shard in mixed.shards) == 300
    rows = np.concatenate(mixed.shards)
    assert len(np.unique(rows)) == len(rows)


def test_steps_world_round_trips_through_its_configuration() -> None:
    spec = Steps(concepts=((0,), (2, 1)), rotations=(0.0, 30.0), dirichlet=0.5)
    assert build_part(WORLDS, to_dict(spec, WORLDS), "world") == spec


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Steps(num_clients=0), "num_clients must be at least 1"),
        (lambda: Steps(concepts=()), "at least one step"),
        (lambda: Steps(concepts=((0,), ()), rotations=(0.0,)), r"at least one; got \(\)"),
        (lambda: Steps(concepts=((0, 0),), rotations=(0.0,)), "different integers"),
        (lambda: Steps(concepts=((-1,),), rotations=(0.0,)), "from 0 on"),
        (lambda: Steps(rotations=(0.0, 90.0)), "one for each of 6 steps, got 2"),
        (lambda: Steps(stay_probability=1.5), "stay_probability must lie in"),
        (lambda: Steps(dirichlet=0.0), "dirichlet must be positive"),
        (lambda: build(Steps(num_clients=2000)), "1207 samples cannot be cut into 2000 shards"),
        (
            lambda: build(Steps(num_clients=10, shard_size=121)),
            "1207 samples cannot be cut into 10 shards of 121",
        ),
        (lambda: Steps(shard_size=0), "shard_size must be at least 1"),
        (
            lambda: build(Steps(concepts=((0, 11),), rotations=(0.0,))),
            "with 10 classes there are concepts 0 to 10, got 11",
        ),
    ],
)
def test_invalid_steps_options_are_rejected(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
