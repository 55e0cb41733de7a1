"""State probabilities that change over time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from thalweg.core.errors import ConfigError
from thalweg.core.types import Ints
from thalweg.streams import LatentStates, PeriodicStates, Setting, StateDynamics, SwitchingRegimes
from thalweg.streams.latent import LatentWorld

LABELS = np.arange(3000) % 10


def build_world(dynamics: StateDynamics | None, *, ticks: int = 100, **changes: Any) -> LatentWorld:
    """Clients of one cluster with eight states, one sample per tick."""
    plain = {"num_clients": 3, "clusters": (1.0,), "states_per_cluster": 8, "arrivals": 1}
    spec = LatentStates(**{**plain, "access": "full", "dynamics": dynamics, **changes})
    return spec.build(Setting(LABELS, 10, ticks=ticks, capacity=5, rounds=50, seed=3))


def visit(world: LatentWorld, client: int, rounds: int) -> Ints:
    """The state of each tick."""
    cursor, _ = world.begin(client)
    seen = []
    for stream_round in range(rounds):
        cursor, arrivals = world.emit(cursor, client, stream_round)
        seen += [arrival.state for arrival in arrivals]
    return np.array(seen)


def shares(states: Ints) -> Any:
    return np.bincount(states, minlength=8) / len(states)


@pytest.mark.parametrize(
    "dynamics", [PeriodicStates(period=40.0, length=0.3), SwitchingRegimes(regimes=4, stay=0.8)]
)
def test_long_run_probabilities_are_those_of_the_world(dynamics: StateDynamics) -> None:
    world = build_world(dynamics)
    for client in range(3):
        found = shares(visit(world, client, 100))  # 10,000 ticks
        assert abs(found - world.true_state_probs(client)).max() < 0.04


def test_probabilities_return_after_a_period() -> None:
    world = build_world(PeriodicStates(period=40.0, length=0.25))
    states = visit(world, 0, 100).reshape(-1, 40)  # one row per period
    phases = [shares(states[:, start : start + 5].ravel()) for start in (0, 20)]
    assert abs(phases[0] - phases[1]).sum() > 1.0, "opposite phases have other states"
    early, late = (shares(states[half, :5].ravel()) for half in (slice(125), slice(125, 250)))
    assert abs(early - late).sum() < 0.2, "equal phases have the same"


def test_clients_have_their_own_phases() -> None:
    world = build_world(PeriodicStates())
    assert len({world.begin(client)[0].position for client in range(3)}) == 3


def test_regimes_last_as_long_as_declared() -> None:
    dynamics = SwitchingRegimes(regimes=4, stay=0.9)
    _, starts = dynamics.move(0, 0, 20_000, np.random.default_rng(0))
    assert set(starts.tolist()) == {0.0, 0.25, 0.5, 0.75}
    changes = np.count_nonzero(np.diff(starts)) / (len(starts) - 1)
    assert changes == pytest.approx(0.1, abs=0.01)  # standard deviation 0.002


def test_a_regime_continues_in_the_next_round() -> None:
    world = build_world(SwitchingRegimes(regimes=2, stay=0.999999), ticks=2)
    cursor, _ = world.begin(0)
    first = cursor.position
    for stream_round in range(20):
        cursor, _ = world.emit(cursor, 0, stream_round)
    assert cursor.position == first


def test_samples_of_a_world_without_dynamics_are_unchanged_by_the_option() -> None:
    plain, moving = build_world(None), build_world(PeriodicStates())
    assert [pool.tolist() for pool in plain.pools] == [pool.tolist() for pool in moving.pools]
    assert plain.true_state_probs(0).tolist() == moving.true_state_probs(0).tolist()


@pytest.mark.parametrize(
    ("cls", "changes"),
    [
        (PeriodicStates, {"period": 0.0}),
        (PeriodicStates, {"length": 0.0}),
        (PeriodicStates, {"length": 1.0}),
        (SwitchingRegimes, {"regimes": 1}),
        (SwitchingRegimes, {"stay": 1.0}),
    ],
)
def test_invalid_settings_are_rejected(cls: Any, changes: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        cls(**changes)
