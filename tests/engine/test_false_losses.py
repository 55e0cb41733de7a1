"""A client that always reports the largest plausible values does not dominate the selection.

Of 20 clients, client 0 reports a loss just below the bound of the server, ten times the loss of a
guess. Printed (`-s`) per seed: how often it takes part, how often it does if it is honest, and the
largest number and the mean of the others.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.recipe_runs import plan_of, play
from engine.test_forged_messages import Lie, Lying
from thalweg.core.types import Ints
from thalweg.engine.plan import Plan
from thalweg.network.limits import limits_for

LIAR, NUM_CLIENTS, NUM_CLASSES = 0, 20, 10
SMALL = [
    *(f"world.num_clients={NUM_CLIENTS}", "world.availability=1", "world.availability_spread=0"),
    *("capacity=16", "local.passes=1", "ticks=1"),
]
LARGEST = 9.99 * math.log(NUM_CLASSES)
NUM_SAMPLES = 160  # ten times those of the others


def report_large_loss(fields: dict[str, Any]) -> None:
    if "candidate_loss" in fields.get("values", {}):
        fields["values"]["candidate_loss"] = np.array([LARGEST])
    if "losses" in fields:
        fields["losses"] = np.full_like(fields["losses"], LARGEST)


def report_many_samples(fields: dict[str, Any]) -> None:
    report_large_loss(fields)
    if "num_samples" in fields:
        fields["num_samples"] = NUM_SAMPLES


def be_honest(fields: dict[str, Any]) -> None:
    """Change nothing."""


def count_choices(plan: Plan, lie: Lie, rounds: int) -> Ints:
    """Return (N,) in how many rounds each client takes part."""
    federation = Lying(plan, lie, [LIAR])
    federation._limits = limits_for(federation.world, plan.local, NUM_CLASSES, max_samples=1000)
    _, history = play(plan, federation, rounds)
    chosen = [np.unique(updates.clients) for updates in history if updates is not None]
    assert not any(updates.rejections for updates in history if updates is not None)
    return np.bincount(np.concatenate(chosen), minlength=NUM_CLIENTS)


def measure(settings: str, rounds: int, seed: int, lie: Lie) -> list[Ints]:
    """Return the choices with a false report and with honest clients."""
    plan = replace(plan_of("fedavg", [*SMALL, *settings.split()]), seed=seed)
    return [count_choices(plan, each, rounds) for each in (lie, be_honest)]


POWD, COHORT = "selection=power-of-choice", "selection=balanced-cohort"
CASES = [
    # settings, rounds, lie, largest mean number of rounds of the liar; a uniform draw: rounds * p
    (f"{POWD} selection.participation=0.1", 20, report_large_loss, 5),
    (f"{POWD} selection.participation=0.3", 20, report_large_loss, 13),
    (f"{POWD} selection.participation=0.1 selection.max_size=1", 20, report_many_samples, 5),
    (f"{POWD} selection.participation=0.3 selection.max_size=1", 20, report_many_samples, 13),
    (f"{COHORT} selection.participation=0.3", 60, report_large_loss, 36),
]


@pytest.mark.slow
@pytest.mark.parametrize(("settings", "rounds", "lie", "bound"), CASES)
def test_false_reports_do_not_dominate_the_selection(
    settings: str, rounds: int, lie: Lie, bound: float
) -> None:
    print(f"\n{settings} {lie.__name__}, {rounds} rounds")
    taken, usual, largest, mean = [], [], [], []
    for seed in range(5):
        false, honest = measure(settings, rounds, seed, lie)
        others = np.delete(false, LIAR)
        taken.append(int(false[LIAR]))
        usual.append(int(honest[LIAR]))
        largest.append(int(others.max()))
        mean.append(float(others.mean()))
    print(
        f"liar {taken}, if honest {usual}, most of the others {largest}, mean {np.mean(mean):.1f}"
    )
    assert np.mean(taken) <= bound


def test_false_loss_of_a_client_that_was_just_chosen_has_no_effect() -> None:
    false, _ = measure(f"{COHORT} selection.participation=0.3", 20, 1, report_large_loss)
    assert false[LIAR] <= 16, "20 if the loss of a client that was chosen recently counts"
