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
NOBODY = np.random.default_rng(0)

A, B, MIXED, NOTHING = [9, 0, 0], [0, 4, 0], [2, 2, 2], [0, 0, 0]


def watched(oracle: Growing, *batches: list[int], state: FoundStates | None = None) -> Any:
    """What the oracle remembers after these batches, and which states it named."""
    state = oracle.init(np.full(5, 0.2), NOBODY) if state is None else state
    names = []
    for batch in batches:
        state, name = oracle.recognise(state, np.array(batch))
        names.append(name)
    return state, names


def test_it_is_recognised_as_an_oracle_with_states_of_its_own() -> None:
    assert isinstance(Growing(), RecognisesStates)


def test_before_anything_arrived_one_balanced_state_is_expected() -> None:
    oracle = Growing()
    state = oracle.init(np.full(5, 0.2), NOBODY)
    outlook = oracle.outlook(state, WORLD, IMPORTANCE)
    assert [part.tolist() for part in outlook] == [[1.0], [1.0], [0.0]]
    assert oracle.signatures(state, WORLD).tolist() == [[1 / 3] * 3]


def test_a_batch_that_fits_no_state_opens_one() -> None:
    state, names = watched(Growing(), A, B, A, MIXED, B)
    assert names == [0, 1, 0, 2, 1]
    assert state.signatures.tolist() == [[1, 0, 0], [0, 1, 0], [1 / 3] * 3]
    assert state.counts.tolist() == [0, 0, 0], "nothing is counted before the round is over"


def test_a_batch_near_a_signature_belongs_to_it() -> None:
    # js of (1, 0, 0) and (.9, .1, 0) is 0.0360 nats.
    assert watched(Growing(new_state_threshold=0.037), A, [9, 1, 0])[1] == [0, 0]
    assert watched(Growing(new_state_threshold=0.035), A, [9, 1, 0])[1] == [0, 1]


@pytest.mark.parametrize(("distance", "value"), [("l1", 0.2), ("l2", np.sqrt(0.02))])
def test_other_distances_can_be_had(distance: Any, value: float) -> None:
    for factor, names in ((1.01, [0, 0]), (0.99, [0, 1])):
        oracle = Growing(distance=distance, new_state_threshold=value * factor)
        assert watched(oracle, A, [9, 1, 0])[1] == names


def test_patience_waits_for_strange_batches_in_a_row() -> None:
    oracle = Growing(patience=3)
    state, names = watched(oracle, A, B, B, A, B, B, B)
    assert names == [0, 0, 0, 0, 0, 0, 1]
    assert state.num_unmatched == 0
    assert watched(oracle, B, state=state)[1] == [1]


def test_the_first_batch_needs_no_patience() -> None:
    assert len(watched(Growing(patience=3), A)[0].counts) == 1


def test_a_full_house_takes_the_nearest() -> None:
    oracle = Growing(max_states=2)
    state, names = watched(oracle, A, B, [1, 5, 6])
    assert names == [0, 1, 1]
    assert len(state.counts) == 2


def test_a_new_state_has_no_visits_and_the_mean_of_the_priors() -> None:
    oracle = Growing(prior=2.0)
    state, _ = watched(oracle, A)
    state = oracle.observe(state, np.array([0, 0]))
    assert oracle.outlook(state, WORLD, IMPORTANCE).probs.tolist() == [1.0]
    state, _ = watched(oracle, B, state=state)
    assert state.prior.tolist() == [2.0, 2.0]
    assert state.counts.tolist() == [2, 0]
    outlook = oracle.outlook(state, WORLD, IMPORTANCE)
    assert outlook.probs.tolist() == pytest.approx([4 / 6, 2 / 6])
    assert outlook.importance.tolist() == [0.5, 0.5]
    assert outlook.heterogeneity == pytest.approx([np.log(3)] * 2)


def test_the_prior_can_be_refreshed_from_what_was_visited() -> None:
    oracle = Growing(prior_strength=8.0)
    state, _ = watched(oracle, A, B)
    state = oracle.observe(state, np.array([0, 0, 0, 1]))
    assert state.prior.tolist() == [6.0, 2.0]
    state, _ = watched(oracle, MIXED, state=state)
    assert state.prior.tolist() == [6.0, 2.0, 4.0]
    # 9 + 3 + 4 pseudo-visits and visits.
    expected = [9 / 16, 3 / 16, 4 / 16]
    assert oracle.outlook(state, WORLD, IMPORTANCE).probs.tolist() == pytest.approx(expected)
    state = oracle.observe(state, np.array([0]))
    assert state.prior.tolist() == pytest.approx([6.4, 1.6, 4.0]), "not visited: as it was"


def test_importance_can_follow_the_visits() -> None:
    oracle = Growing(importance="frequency")
    state, _ = watched(oracle, A, B)
    assert oracle.outlook(state, WORLD, IMPORTANCE).importance.tolist() == [0.5, 0.5]
    state = oracle.observe(state, np.array([0, 0, 0, 1]))
    assert oracle.outlook(state, WORLD, IMPORTANCE).importance.tolist() == [0.75, 0.25]


def test_a_tick_without_samples_counts_for_the_state_visited_most() -> None:
    oracle = Growing()
    assert watched(oracle, NOTHING)[1] == [0]
    state, _ = watched(oracle, A, B)
    state = oracle.observe(state, np.array([1, 1, 0]))
    following, names = watched(oracle, NOTHING, state=state)
    assert names == [1]
    assert to_comparable(following) == to_comparable(state)


def test_a_silent_round_before_the_first_batch_is_no_visit() -> None:
    oracle = Growing()
    state, names = watched(oracle, NOTHING, NOTHING)
    assert to_comparable(oracle.observe(state, np.array(names))) == to_comparable(state)


def test_a_checkpoint_restores_more_states_than_a_newborn_has() -> None:
    oracle = Growing(prior_strength=3.0)
    state, _ = watched(oracle, A, B, MIXED)
    state = oracle.observe(state, np.array([0, 1, 1, 2]))
    restored = round_trip(state, fresh=oracle.init(np.full(5, 0.2), NOBODY))
    assert type(restored) is FoundStates
    assert to_comparable(restored) == to_comparable(state)


def test_it_finds_as_many_states_as_a_world_of_distinct_ones_has() -> None:
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
        state: Any = oracle.init(world.true_state_probs(client), NOBODY)
        stream, _ = world.begin(client)
        names: dict[int, set[int]] = {}
        for lived in range(30):
            stream, arrivals = world.emit(stream, client, lived)
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
def test_impossible_values_are_refused_where_the_oracle_is_made(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Growing(**bad)


def test_a_state_can_be_opened_for_samples_that_resemble_another() -> None:
    oracle = Growing()
    assert isinstance(oracle, OpensStates)
    state, _ = watched(oracle, A)
    told = oracle.open_next_state(state)
    assert len(told.counts) == 1, "only when something arrives"
    after, names = watched(oracle, NOTHING, A, A, B, state=told)
    assert names == [0, 1, 0, 2], "once; of two that are alike the older is taken"
    assert after.signatures.tolist() == [[1, 0, 0], [1, 0, 0], [0, 1, 0]]


def test_patience_is_not_needed_for_a_state_that_was_asked_for() -> None:
    oracle = Growing(patience=3)
    state, _ = watched(oracle, A)
    opened, names = watched(oracle, B, state=oracle.open_next_state(state))
    assert names == [1]
    assert opened.num_unmatched == 0


def test_a_state_that_was_asked_for_finds_no_room_if_there_are_enough() -> None:
    oracle = Growing(max_states=1)
    state, _ = watched(oracle, A)
    after, names = watched(oracle, B, state=oracle.open_next_state(state))
    assert names == [0]
    assert after.num_unmatched == 0, "the wish is forgotten"
