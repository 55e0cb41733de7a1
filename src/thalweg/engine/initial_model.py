"""The model that a run begins with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats32
from thalweg.data.search import find_user_file
from thalweg.engine.plan import Plan
from thalweg.nets import Net, load_parameters


def make_initial_model(plan: Plan, net: Net, data_dir: Path | None) -> Floats32:
    """(P,) from the file that the scenario names, or drawn by the run's seed."""
    if plan.scenario.start_from is None:
        return net.init(rng_for(plan.seed, Draw.NET))
    return load_parameters(find_user_file(plan.scenario.start_from, data_dir), net)


def make_model_factory(plan: Plan, net: Net) -> Callable[[int], Floats32]:
    """For banks that open models at random: the n-th of a run. The first one is `make_initial_model`."""
    return lambda number: net.init(rng_for(plan.seed, Draw.NET, number))
