from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from contracts.checkpoint import plain, stored
from contracts.looks import FakeLook
from recipes.script import LABELS, Script, clients, live, played, recipe
from thalweg.core.errors import ConfigError
from thalweg.core.trees import like, read_tree, write_tree
from thalweg.core.types import Floats, Holding
from thalweg.emphasis import InverseStay
from thalweg.forecast import Bayesian
from thalweg.memory import Fifo, Replace, Reservoir, UniformRatio
from thalweg.recipes import RECIPES
from thalweg.recipes.visit import enter
from thalweg.streams import LatentStates, Setting


def test_a_client_is_born_with_what_its_world_gives_and_fits() -> None:
    newborn = clients(recipe(Reservoir()), Script(start=9), capacity=4).newborn(2)
    assert newborn.rows.tolist() == [200_000, 200_001, 200_002, 200_003]
    assert newborn.rows.dtype == np.int32
    assert newborn.lived == 0
    assert newborn.memory == Reservoir().init(4, 4)


def test_another_seed_is_another_life() -> None:
    one, other = (
        clients(recipe(UniformRatio()), Script(per_tick=40, start=40), capacity=40, seed=s)
        for s in (0, 1)
    )
    assert played(one, 0, [0]).rows.tolist() != played(other, 0, [0]).rows.tolist()


def test_all_that_a_client_remembers_survives_a_checkpoint(tmp_path: Path) -> None:
    who = clients(recipe(Reservoir(), forecast=Bayesian()))
    state = played(who, 1, [0, 1])
    assert plain(stored(state, fresh=who.newborn(1))) == plain(state)
    write_tree(tmp_path / "clients", {"1": state})
    restored = like(who.newborn(1), read_tree(tmp_path / "clients")["1"])
    here, there = enter(who, 1, state, 2), enter(who, 1, restored, 2)
    assert live(here) == live(there)
    assert plain(here.leave()) == plain(there.leave())


def test_the_world_is_the_same_for_every_recipe() -> None:
    world = LatentStates(num_clients=4).build(
        Setting(LABELS[:3000], 7, ticks=3, capacity=20, rounds=9, seed=5)
    )
    lives = []
    for make in RECIPES.values():
        who = clients(make(), world, seed=5)
        state = who.newborn(2)
        visit = enter(who, 2, state, 0, [FakeLook([], [])])
        live(visit)
        later = enter(who, 2, visit.leave(), 4, [FakeLook([], [])])
        lives.append(plain([state.rows, visit.arrivals, later.arrivals]))
    assert len(lives) > 2
    assert all(life == lives[0] for life in lives)


def test_only_recipes_that_look_at_their_model_are_attentive() -> None:
    attentive = {name for name, make in RECIPES.items() if clients(make()).is_attentive}
    by_session = {"scaffold", "scaffold-released", "moon", "continuous"}
    assert attentive == {"fedcurv", "fedewc", "flwf-2t", "is", "ode"} | by_session


@dataclass(frozen=True)
class Broken:
    weights: tuple[float, ...]

    def weigh(self, holding: Holding) -> Floats:
        return np.array(self.weights)


@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 1.0, 1.0, -1.0), (1.0, 1.0, 1.0, np.nan)])
def test_an_emphasis_that_is_wrong_is_told_so(weights: tuple[float, ...]) -> None:
    who = clients(recipe(Replace(), emphasis=Broken(weights)))
    visit = enter(who, 0, who.newborn(0), 0)
    visit.observe()
    with pytest.raises(ConfigError, match=r"Broken\.weigh must return 4 finite weights"):
        visit.batches()


def test_when_samples_came_survives_a_checkpoint() -> None:
    who = clients(recipe(Fifo(), emphasis=InverseStay()))
    state = played(who, 0, [0, 2])
    restored = stored(state, fresh=who.newborn(0))
    assert plain(restored) == plain(state)
