from __future__ import annotations

import numpy as np

from contracts.examples import some_roster
from thalweg.selection import Available


def test_all_present_clients_are_chosen() -> None:
    for present in ([], [3], [0, 2, 5]):
        chosen = Available().choose(some_roster(present, 6), np.random.default_rng(0))
        assert chosen.tolist() == present
