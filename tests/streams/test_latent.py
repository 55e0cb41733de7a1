from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from thalweg.core.errors import ConfigError
from thalweg.core.transforms import Dimmed, Rotated
from thalweg.core.types import Floats
from thalweg.core.views import View
from thalweg.streams import LatentStates, Setting
from thalweg.streams.latent import LatentCursor, LatentViewsWorld, LatentWorld

LABELS = np.arange(3000) % 10


def build_world(
    spec: LatentStates, *, ticks: int = 5, capacity: int = 20, seed: int = 0
) -> LatentWorld:
    return spec.build(Setting(LABELS, 10, ticks=ticks, capacity=capacity, rounds=40, seed=seed))


def all_probs(world: LatentWorld) -> Floats:
    return world.probs.rows(0, world.num_clients)


def states_visited(world: LatentWorld, client: int, rounds: int) -> list[int]:
    state, _ = world.begin(client)
    seen = []
    for stream_round in range(rounds):
        state, arrivals = world.emit(state, client, stream_round)
        seen += [arrival.state for arrival in arrivals]
    return seen


def small_spec(**changes: Any) -> LatentStates:
    """One client, one cluster of four states, one sample per tick."""
    plain = {"num_clients": 1, "clusters": (1.0,), "states_per_cluster": 4, "arrivals": 1}
    return LatentStates(**{**plain, "access": "full", **changes})


def test_default_latent_world_has_30_clients_and_60_states() -> None:
    world = build_world(LatentStates())
    assert (world.num_clients, world.state_table.num_states) == (30, 60)
    assert world.state_table.importance.tolist() == [1 / 60] * 60


def test_state_pools_are_disjoint_and_cover_the_data() -> None:
    pools = build_world(LatentStates()).pools
    assert np.sort(np.concatenate(pools)).tolist() == list(range(3000))
    assert min(len(pool) for pool in pools) >= 10


def test_state_table_holds_the_class_mix_of_every_pool() -> None:
    world = build_world(LatentStates())
    for pool, histogram in zip(world.pools, world.state_table.histograms, strict=True):
        counts = np.bincount(LABELS[pool], minlength=10)
        assert histogram.tolist() == (counts / len(pool)).tolist()


def test_clusters_are_ordered_from_skewed_to_balanced() -> None:
    histograms = build_world(LatentStates()).state_table.histograms
    largest = histograms.max(axis=1).reshape(6, 10).mean(axis=1)  # (clusters,)
    assert largest[0] > 0.5
    assert largest[5] < 0.3
    assert (largest[:2] > largest[4]).all()


def test_full_access_reaches_every_state() -> None:
    world = build_world(LatentStates(access="full"))
    assert (all_probs(world) > 0).all()


def test_partial_access_reaches_the_given_number_of_states() -> None:
    world = build_world(LatentStates(access="partial", reachable=7))
    assert ((all_probs(world) > 0).sum(axis=1) == 7).all()


def test_confined_clients_stay_in_the_two_most_skewed_clusters() -> None:
    for clusters, skewed in (
        ((0.05, 0.1, 0.2, 0.5), range(20)),
        ((0.5, 0.1, 100.0, 0.05), [*range(10, 20), *range(30, 40)]),
    ):
        world = build_world(LatentStates(clusters=clusters))
        confined = [set(np.flatnonzero(row)) <= set(skewed) for row in all_probs(world)]
        # For one of the others all ten states of forty lie there with probability 0.0002.
        assert confined == [True] * 15 + [False] * 15


def test_no_client_is_confined_with_a_zero_share() -> None:
    world = build_world(LatentStates(confined=0.0, clusters=(0.1, 1.0, 100.0), reachable=25))
    assert ((all_probs(world) > 0).sum(axis=1) == 25).all()


def test_client_visits_only_reachable_states() -> None:
    world = build_world(LatentStates(), ticks=20)
    for client in range(30):
        reach = set(np.flatnonzero(world.true_state_probs(client)))
        assert set(states_visited(world, client, 5)) <= reach


@pytest.mark.parametrize("stickiness", [0.0, 0.7])
def test_state_visits_follow_the_state_probabilities(stickiness: float) -> None:
    world = build_world(small_spec(stickiness=stickiness), ticks=50)
    seen = np.array(states_visited(world, 0, 200))  # 10,000 ticks
    truth = world.true_state_probs(0)
    # Staying makes neighbours alike: 10,000 ticks count as 10,000 * 0.3 / 1.7 = 1765 free
    # ones, so the standard deviation of a share is at most 0.5 / 42 = 0.012.
    assert abs(np.bincount(seen, minlength=4) / len(seen) - truth).max() < 5 * 0.012
    # A tick repeats the last state if it stays, or if it draws the same one by chance.
    repeats = stickiness + (1 - stickiness) * float(truth @ truth)
    assert abs((seen[1:] == seen[:-1]).mean() - repeats) < 5 * 0.012


def test_first_state_follows_the_state_probabilities() -> None:
    world = build_world(
        LatentStates(num_clients=2000, clusters=(1.0,), states_per_cluster=2, access="full"),
        capacity=1,
    )
    began = np.array([world.begin(client)[0].state for client in range(2000)])
    # E[share of state 1] is the mean of its probability over clients; standard deviation 0.011.
    assert abs(began.mean() - all_probs(world)[:, 1].mean()) < 5 * 0.011


def test_sticky_client_stays_in_the_state_of_the_last_round() -> None:
    world = build_world(small_spec(stickiness=0.999999), ticks=3)
    for there in range(4):
        following, arrivals = world.emit(LatentCursor(there), 0, 1)
        assert [arrival.state for arrival in arrivals] == [there] * 3
        assert following == LatentCursor(there)


def test_arriving_samples_belong_to_the_current_state() -> None:
    world = build_world(LatentStates(), capacity=15)
    for client in range(5):
        state, start = world.begin(client)
        _, arrivals = world.emit(state, client, 0)
        for arrival in (start, *arrivals):
            assert set(arrival.items.tolist()) <= set(world.pools[arrival.state].tolist())


def test_client_starts_with_a_full_memory_of_its_first_state() -> None:
    world = build_world(LatentStates(arrivals=3), capacity=15)
    state, start = world.begin(4)
    assert len(start.items) == 15
    assert start.state == state.state


def test_arrivals_per_tick_default_to_the_memory_capacity() -> None:
    for arrivals, expected in ((None, 15), (3, 3)):
        world = build_world(LatentStates(arrivals=arrivals), capacity=15)
        _, got = world.emit(world.begin(0)[0], 0, 0)
        assert [len(arrival.items) for arrival in got] == [expected] * 5


def test_small_state_pool_repeats_only_after_all_rows_arrived() -> None:
    world = build_world(LatentStates(), capacity=60)
    sizes = [len(pool) for pool in world.pools]
    assert min(sizes) < 60 < max(sizes)
    for client in range(10):
        _, arrivals = world.emit(world.begin(client)[0], client, 0)
        for items, state, _ in arrivals:
            assert np.bincount(items).max() == -(-60 // sizes[state])
            lap = items[: sizes[state]]
            assert len(set(lap.tolist())) == len(lap)


def test_samples_differ_between_rounds() -> None:
    world = build_world(LatentStates(), capacity=10)
    state, _ = world.begin(0)
    lives = [
        [arrival.items.tolist() for arrival in world.emit(state, 0, stream_round)[1]]
        for stream_round in (0, 1)
    ]
    assert lives[0] != lives[1]


def test_pools_and_state_probabilities_depend_on_the_seed_only() -> None:
    one, same, other = (
        build_world(LatentStates(), seed=seed, capacity=c)
        for seed, c in ((1, 10), (1, 50), (2, 10))
    )
    assert all_probs(one).tolist() == all_probs(same).tolist()
    assert [pool.tolist() for pool in one.pools] == [pool.tolist() for pool in same.pools]
    assert all_probs(one).tolist() != all_probs(other).tolist()
    assert one.pools[0].tolist() != other.pools[0].tolist()


def test_availability_is_close_to_its_mean() -> None:
    availability = build_world(
        LatentStates(availability=0.4, availability_spread=0.02)
    ).availability
    assert abs(availability - 0.4).max() < 5 * 0.02
    assert len(set(availability.tolist())) == 30


def test_frequency_importance_is_the_mean_state_probability() -> None:
    world = build_world(LatentStates(importance="frequency"))
    assert world.state_table.importance == pytest.approx(all_probs(world).mean(axis=0))


def test_label_prior_states_have_equal_sizes() -> None:
    pools = build_world(LatentStates(state_data="label_prior")).pools
    assert {len(pool) for pool in pools} == {50}


def test_absent_option_sets_collects_when_absent() -> None:
    assert not build_world(LatentStates()).collects_when_absent
    assert build_world(LatentStates(absent="collecting")).collects_when_absent


@pytest.mark.parametrize(
    "bad",
    [
        {"num_clients": 0},
        {"clusters": ()},
        {"clusters": (0.5, 0.0)},
        {"clusters": (0.5, -1.0)},
        {"clusters": (float("inf"),)},
        {"clusters": (float("nan"), 1.0)},
        {"states_per_cluster": 0},
        {"reachable": 0},
        {"reachable": 21},
        {"confined": 0.0, "reachable": 61},
        {"confined": -0.1},
        {"confined": 1.1},
        {"confined": float("nan")},
        {"stickiness": 1.0},
        {"stickiness": -0.1},
        {"min_state_size": 0},
        {"availability": 0.0},
        {"availability": 1.1},
        {"availability_spread": -0.1},
        {"availability_spread": float("inf")},
        {"arrivals": 0},
        {"access": "fll"},
        {"state_data": "dealt"},
        {"importance": "uniformly"},
        {"absent": "froze"},
    ],
    ids=str,
)
def test_invalid_latent_options_are_rejected(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=list(bad)[-1]):
        LatentStates(**bad)


def test_reachable_is_ignored_with_full_access() -> None:
    assert LatentStates(access="full", states_per_cluster=2).num_states == 12


def test_too_few_samples_for_the_states_are_rejected() -> None:
    with pytest.raises(ConfigError, match="use fewer states, fewer clusters"):
        build_world(LatentStates(min_state_size=100))


def test_label_mix_of_a_client_is_the_mean_over_its_states() -> None:
    world = build_world(LatentStates())
    by_hand = sum(
        p * h for p, h in zip(world.true_state_probs(3), world.state_table.histograms, strict=True)
    )
    assert world.mixes[3] == pytest.approx(by_hand)
    assert not world.has_clients_of_data


@pytest.mark.parametrize(
    ("absent", "num_rounds"),
    [("frozen", 8), ("collecting", 40)],  # present in a fifth of 40 rounds
)
def test_supply_is_the_initial_memory_plus_arrivals(absent: Any, num_rounds: float) -> None:
    spec = LatentStates(availability=0.2, availability_spread=0.0, absent=absent, arrivals=3)
    world = build_world(spec, ticks=5, capacity=20)
    assert world.capacity(7) == 20
    total, is_historical, rounds = world.supply(7)
    assert total == pytest.approx(20 + 5 * 3 * num_rounds)
    assert not is_historical
    assert rounds == pytest.approx(8)


def test_states_of_a_cluster_take_turns_in_their_views() -> None:
    world = build_world(
        LatentStates(
            num_clients=4,
            clusters=(1.0, 1.0),
            states_per_cluster=5,
            access="full",
            rotations=(0.0, 90.0),
            brightness=(0.5,),
        )
    )
    assert isinstance(world, LatentViewsWorld)
    assert world.views == (View(), View(Rotated(90.0)), View(Dimmed(0.5)))
    views = [set((pool // len(LABELS)).tolist()) for pool in world.pools]
    assert views == [{0}, {1}, {2}, {0}, {1}] * 2
    assert world.views_at(7).tolist() == [0, 1, 2, 0], "clients are tested in turns"
    assert world.concepts_at(7).tolist() == [0] * 4, "labels are unchanged"
    assert world.drift_events() == []


def test_embeddings_are_the_shares_of_each_class_in_each_view() -> None:
    world = build_world(
        LatentStates(clusters=(1.0,), states_per_cluster=2, access="full", brightness=(0.2, 0.5))
    )
    table = world.state_table
    assert table.embeddings is not None
    first, second = table.histograms
    nothing = [0.0] * 10
    assert table.embeddings.tolist() == [[*first, *nothing], [*nothing, *second]]
    assert table.goal == pytest.approx(np.concatenate([first, second]) / 2)


def test_goal_without_views_is_balanced_classes() -> None:
    assert build_world(LatentStates()).state_table.goal.tolist() == [0.1] * 10


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rotations": (0.0, 90.0, 180.0), "states_per_cluster": 2}, "states_per_cluster=3"),
        ({"rotations": (float("inf"),)}, "finite angles"),
        ({"brightness": (-0.5,)}, "at least 0"),
    ],
)
def test_invalid_views_are_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LatentStates(**{"reachable": 1, **changes})
