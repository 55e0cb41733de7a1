from __future__ import annotations

import numpy as np

from thalweg.streams import Inflow, Setting, collect_supplies


def test_collect_supplies_stacks_the_supply_of_every_client() -> None:
    setting = Setting(np.arange(60) % 3, 3, ticks=1, capacity=9, rounds=5, seed=0)
    world = Inflow(num_clients=4, historical=0.5, availability=0.6).build(setting)
    supplies = collect_supplies(world)
    assert supplies.is_historical.tolist() == [True, True, False, False]
    for client in range(4):
        one = (supplies.total[client], supplies.is_historical[client], supplies.rounds[client])
        assert one == world.supply(client)
