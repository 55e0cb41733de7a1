"""`Growing` finds states in the label counts of batches and forecasts them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from contracts.checkpoint import round_trip, to_comparable
from thalweg.core.errors import ConfigError
from thalweg.forecast import Growing, OpensStates, RecognisesStates
from thalweg.forecast.growing import FoundStates
from thalweg.streams import LatentStates, Setting

WORLD = np.full((5, 3), 1 / 3)  # class shares of the world's states, which the oracle cannot see
IMPORTANCE = np.full(5, 1 / 5)
UNUSED_RNG = np.random.default_rng(0)

A, B, MIXED, NOTHING = [9, 0, 0], [0, 4, 0], [2, 2, 2], [0, 0, 0]


def observe_batches(oracle: Growing, *batches: list[int], state: FoundStates | None = None) -> Any:
    """Return the state of the oracle after these batches and the recognised states."""
    state = oracle.init(np.full(5, 0.2), UNUSED_RNG) if state is None else state
    names = []
    for batch in batches:
        state, name = oracle.recognise(state, np.array(batch))
        names.append(name)
    return state, names


def test_growing_recognises_states() -> None:
    assert isinstance(Growing(), RecognisesStates)


def test_growing_expects_one_balanced_state_before_the_first_batch() -> None:
    oracle = Growing()
    state = oracle.init(np.full(5, 0.2), UNUSED_RNG)
    outlook = oracle.outlook(state, WORLD, IMPORTANCE)
    assert [part.tolist() for part in outlook[:3]] == [[1.0], [1.0], [0.0]]
    assert oracle.signatures(state, WORLD).tolist() == [[1 / 3] * 3]


def test_batch_unlike_all_states_opens_a_new_state() -> None:
    state, names = observe_batches(Growing(), A, B, A, MIXED, B)
    assert names == [0, 1, 0, 2, 1]
    assert state.signatures.tolist() == [[1, 0, 0], [0, 1, 0], [1 / 3] * 3]
    assert state.counts.tolist() == [0, 0, 0], "nothing is counted before the round is over"


def test_batch_below_the_threshold_belongs_to_the_nearest_state() -> None:
    # js of (1, 0, 0) and (.9, .1, 0) is 0.0360 nats.
    assert observe_batches(Growing(new_state_threshold=0.037), A, [9, 1, 0])[1] == [0, 0]
    assert observe_batches(Growing(new_state_threshold=0.035), A, [9, 1, 0])[1] == [0, 1]


@pytest.mark.parametrize(("distance", "value"), [("l1", 0.2), ("l2", np.sqrt(0.02))])
def test_threshold_applies_to_the_configured_distance(distance: Any, value: float) -> None:
    for factor, names in ((1.01, [0, 0]), (0.99, [0, 1])):
        oracle = Growing(distance=distance, new_state_threshold=value * factor)
        assert observe_batches(oracle, A, [9, 1, 0])[1] == names


def test_patience_needs_consecutive_unmatched_batches() -> None:
    oracle = Growing(patience=3)
    state, names = observe_batches(oracle, A, B, B, A, B, B, B)
    assert names == [0, 0, 0, 0, 0, 0, 1]
    assert state.num_unmatched == 0
    assert observe_batches(oracle, B, state=state)[1] == [1]


def test_first_batch_opens_a_state_without_patience() -> None:
    assert len(observe_batches(Growing(patience=3), A)[0].counts) == 1


def test_batch_belongs_to_the_nearest_state_at_max_states() -> None:
    oracle = Growing(max_states=2)
    state, names = observe_batches(oracle, A, B, [1, 5, 6])
    assert names == [0, 1, 1]
    assert len(state.counts) == 2


def test_new_state_has_no_visits_and_the_mean_prior() -> None:
    oracle = Growing(prior=2.0)
    state, _ = observe_batches(oracle, A)
    state = oracle.observe(state, np.array([0, 0]))
    assert oracle.outlook(state, WORLD, IMPORTANCE).probs.tolist() == [1.0]
    state, _ = observe_batches(oracle, B, state=state)
    assert state.prior.tolist() == [2.0, 2.0]
    assert state.counts.tolist() == [2, 0]
    outlook = oracle.outlook(state, WORLD, IMPORTANCE)
    assert outlook.probs.tolist() == pytest.approx([4 / 6, 2 / 6])
    assert outlook.importance.tolist() == [0.5, 0.5]
    assert outlook.heterogeneity == pytest.approx([np.log(3)] * 2)


def test_prior_strength_updates_the_prior_from_visits() -> None:
    oracle = Growing(prior_strength=8.0)
    state, _ = observe_batches(oracle, A, B)
    state = oracle.observe(state, np.array([0, 0, 0, 1]))
    assert state.prior.tolist() == [6.0, 2.0]
    state, _ = observe_batches(oracle, MIXED, state=state)
    assert state.prior.tolist() == [6.0, 2.0, 4.0]
    # 9 + 3 + 4 pseudo-visits and visits.
    expected = [9 / 16, 3 / 16, 4 / 16]
    assert oracle.outlook(state, WORLD, IMPORTANCE).probs.tolist() == pytest.approx(expected)
    state = oracle.observe(state, np.array([0]))
    assert state.prior.tolist() == pytest.approx([6.4, 1.6, 4.0]), (
        "the prior of a state without visits is unchanged"
    )


def test_importance_by_frequency_follows_visits() -> None:
    oracle = Growing(importance="frequency")
    state, _ = observe_batches(oracle, A, B)
    assert oracle.outlook(state, WORLD, IMPORTANCE).importance.tolist() == [0.5, 0.5]
    state = oracle.observe(state, np.array([0, 0, 0, 1]))
    assert oracle.outlook(state, WORLD, IMPORTANCE).importance.tolist() == [0.75, 0.25]


def test_empty_batch_counts_for_the_most_visited_state() -> None:
    oracle = Growing()
    assert observe_batches(oracle, NOTHING)[1] == [0]
    state, _ = observe_batches(oracle, A, B)
    state = oracle.observe(state, np.array([1, 1, 0]))
    following, names = observe_batches(oracle, NOTHING, state=state)
    assert names == [1]
    assert to_comparable(following) == to_comparable(state)


def test_empty_batches_before_the_first_sample_are_not_counted() -> None:
    oracle = Growing()
    state, names = observe_batches(oracle, NOTHING, NOTHING)
    assert to_comparable(oracle.observe(state, np.array(names))) == to_comparable(state)


def test_checkpoint_restores_all_found_states() -> None:
    oracle = Growing(prior_strength=3.0)
    state, _ = observe_batches(oracle, A, B, MIXED)
    state = oracle.observe(state, np.array([0, 1, 1, 2]))
    restored = round_trip(state, fresh=oracle.init(np.full(5, 0.2), UNUSED_RNG))
    assert type(restored) is FoundStates
    assert to_comparable(restored) == to_comparable(state)


def test_growing_finds_the_states_of_a_latent_state_world() -> None:
    labels = np.repeat(np.arange(6), 200)
    spec = LatentStates(num_clients=4, clusters=(1.0,), states_per_cluster=6, access="full")
    world = spec.build(Setting(labels, 6, ticks=10, capacity=40, rounds=30, seed=1))
    # State m is three quarters class m and one quarter the class after it.
    pools = tuple(
        np.concatenate([200 * m + np.arange(150), 200 * ((m + 1) % 6) + np.arange(50)])
        for m in range(6)
    )
    world = replace(world, pools=pools)
    oracle = Growing()
    for client in range(4):
        state: Any = oracle.init(world.true_state_probs(client), UNUSED_RNG)
        stream, _ = world.begin(client)
        names: dict[int, set[int]] = {}
        for stream_round in range(30):
            stream, arrivals = world.emit(stream, client, stream_round)
            seen = []
            for arrival in arrivals:
                batch = np.bincount(labels[arrival.items], minlength=6)
                state, name = oracle.recognise(state, batch)
                names.setdefault(arrival.state, set()).add(name)
                seen.append(name)
            state = oracle.observe(state, np.array(seen))
        visited = sorted(names)
        assert len(state.counts) == len(visited)
        assert all(len(mine) == 1 for mine in names.values()), "one name per state of the world"
        order = [next(iter(names[true])) for true in visited]
        learnt = oracle.outlook(
            state, world.state_table.histograms, world.state_table.importance
        ).probs[order]
        # 300 visits: standard deviation at most 0.029.
        assert abs(learnt - world.true_state_probs(client)[visited]).max() < 5 * 0.029


@pytest.mark.parametrize(
    "bad",
    [
        {"new_state_threshold": 0.0},
        {"new_state_threshold": float("nan")},
        {"patience": 0},
        {"max_states": 0},
        {"distance": "kl"},
        {"importance": "unform"},
        {"prior": 0.0},
        {"prior_strength": 0.0},
        {"prior_strength": float("inf")},
        {"proxy": "l3"},
    ],
    ids=str,
)
def test_invalid_parameters_of_growing_are_rejected(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Growing(**bad)


def test_open_next_state_opens_a_state_for_a_similar_batch() -> None:
    oracle = Growing()
    assert isinstance(oracle, OpensStates)
    state, _ = observe_batches(oracle, A)
    requested = oracle.open_next_state(state)
    assert len(requested.counts) == 1, "the state is opened by the next samples"
    after, names = observe_batches(oracle, NOTHING, A, A, B, state=requested)
    assert names == [0, 1, 0, 2], "once; of two equal states the older one is chosen"
    assert after.signatures.tolist() == [[1, 0, 0], [1, 0, 0], [0, 1, 0]]


def test_open_next_state_ignores_patience() -> None:
    oracle = Growing(patience=3)
    state, _ = observe_batches(oracle, A)
    opened, names = observe_batches(oracle, B, state=oracle.open_next_state(state))
    assert names == [1]
    assert opened.num_unmatched == 0


def test_open_next_state_respects_max_states() -> None:
    oracle = Growing(max_states=1)
    state, _ = observe_batches(oracle, A)
    after, names = observe_batches(oracle, B, state=oracle.open_next_state(state))
    assert names == [0]
    assert after.num_unmatched == 0, "the request is dropped"
