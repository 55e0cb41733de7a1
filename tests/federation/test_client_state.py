from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from contracts.checkpoint import round_trip, to_comparable
from contracts.model_probes import FakeModelProbe
from federation.scripted_stream import (
    LABELS,
    ScriptedStream,
    clients,
    play_rounds,
    recipe,
    run_round,
)
from thalweg.core.errors import ConfigError
from thalweg.core.trees import read_tree, restore_types, write_tree
from thalweg.core.types import Floats, SampleAges
from thalweg.federation import ClientContext, start_round
from thalweg.forecast import Bayesian
from thalweg.memory import Fifo, Replace, Reservoir, UniformRatio
from thalweg.recipes import RECIPES
from thalweg.sample_weights import InverseAge
from thalweg.streams import LatentStates, Setting


def test_new_client_has_the_initial_samples_that_fit() -> None:
    new_client = clients(recipe(Reservoir()), ScriptedStream(start=9), capacity=4).new_client(2)
    assert new_client.rows.tolist() == [200_000, 200_001, 200_002, 200_003]
    assert new_client.rows.dtype == np.int32
    assert new_client.stream_round == 0
    assert new_client.memory == Reservoir().init(4, 4)


def test_another_seed_gives_another_client() -> None:
    one, other = (
        clients(recipe(UniformRatio()), ScriptedStream(per_tick=40, start=40), capacity=40, seed=s)
        for s in (0, 1)
    )
    assert play_rounds(one, 0, [0]).rows.tolist() != play_rounds(other, 0, [0]).rows.tolist()


def test_client_state_survives_a_checkpoint(tmp_path: Path) -> None:
    who = clients(recipe(Reservoir(), forecast=Bayesian()))
    state = play_rounds(who, 1, [0, 1])
    assert to_comparable(round_trip(state, fresh=who.new_client(1))) == to_comparable(state)
    write_tree(tmp_path / "clients", {"1": state})
    restored = restore_types(who.new_client(1), read_tree(tmp_path / "clients")["1"])
    here, there = (
        start_round(ClientContext(who, 1, 2), state),
        start_round(ClientContext(who, 1, 2), restored),
    )
    assert run_round(here) == run_round(there)
    assert to_comparable(here.finish()) == to_comparable(there.finish())


def test_world_is_the_same_for_every_recipe() -> None:
    world = LatentStates(num_clients=4).build(
        Setting(LABELS[:3000], 7, ticks=3, capacity=20, rounds=9, seed=5)
    )
    lives = []
    for make in RECIPES.values():
        who = clients(make(), world, seed=5)
        state = who.new_client(2)
        client_round = start_round(ClientContext(who, 2, 0, [FakeModelProbe([], [])]), state)
        run_round(client_round)
        later = start_round(
            ClientContext(who, 2, 4, [FakeModelProbe([], [])]), client_round.finish()
        )
        lives.append(to_comparable([state.rows, client_round.arrivals, later.arrivals]))
    assert len(lives) > 2
    assert all(life == lives[0] for life in lives)


def test_only_recipes_that_evaluate_the_model_need_a_probe() -> None:
    attentive = {name for name, make in RECIPES.items() if clients(make()).needs_probe}
    by_session = {"scaffold", "scaffold-released", "moon", "continuous"}
    assert attentive == {"fedcurv", "fedewc", "flwf-2t", "is", "ode"} | by_session


@dataclass(frozen=True)
class Broken:
    weights: tuple[float, ...]

    def weigh(self, holding: SampleAges) -> Floats:
        return np.array(self.weights)


@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 1.0, 1.0, -1.0), (1.0, 1.0, 1.0, np.nan)])
def test_invalid_sample_weights_are_rejected(weights: tuple[float, ...]) -> None:
    who = clients(recipe(Replace(), sample_weights=Broken(weights)))
    client_round = start_round(ClientContext(who, 0, 0), who.new_client(0))
    client_round.observe()
    with pytest.raises(ConfigError, match=r"Broken\.weigh must return 4 finite weights"):
        client_round.batches()


def test_arrival_rounds_survive_a_checkpoint() -> None:
    who = clients(recipe(Fifo(), sample_weights=InverseAge()))
    state = play_rounds(who, 0, [0, 2])
    restored = round_trip(state, fresh=who.new_client(0))
    assert to_comparable(restored) == to_comparable(state)
