from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from thalweg.core.errors import ConfigError
from thalweg.engine.loop import run_plan
from thalweg.engine.plan import make_plan, plan_from_toml, plan_to_toml
from thalweg.streams import Live, Setting
from thalweg.streams.live import split_into_ticks


def test_live_world_on_the_server_has_clients_but_no_data() -> None:
    world = Live(3).build(Setting(np.arange(10) % 5, 5, ticks=2, capacity=7, rounds=4, seed=0))
    assert world.present(2).tolist() == [0, 1, 2]
    assert world.availability.tolist() == [1, 1, 1]
    assert world.state_table.histograms.tolist() == [[0.2] * 5]
    assert not world.mixes.any()
    assert (world.supply(1), world.capacity(1)) == ((0.0, False, 4.0), 7)


def test_split_into_ticks_keeps_order_and_allows_empty_ticks() -> None:
    rows = np.array([3, 1, 2], dtype=np.int64)
    assert [part.items.tolist() for part in split_into_ticks(rows, 2)] == [[3, 1], [2]]
    assert [part.items.tolist() for part in split_into_ticks(rows, 4)] == [[3], [1], [2], []]


def test_live_run_without_a_network_is_rejected_before_creating_a_folder(tmp_path: Path) -> None:
    plan = make_plan("fedavg", "digits-partial", rounds=2, overrides=["world=live"])
    assert plan_from_toml(plan_to_toml(plan), "the plan") == plan
    with pytest.raises(ConfigError, match="the world live has no data"):
        run_plan(plan, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_recipe_that_needs_supplies_is_rejected_for_a_live_world() -> None:
    plan = make_plan("stream-uniform", "digits-partial", rounds=2, overrides=["world=live"])
    with pytest.raises(ConfigError, match="which this world does not provide"):
        run_plan(plan)
