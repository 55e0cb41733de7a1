from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import thalweg
from contracts.examples import some_roster
from thalweg.core.errors import ConfigError
from thalweg.core.types import Roster, SampleAges, Supplies
from thalweg.sample_weights import Early

SMALL = ["capacity=24", "local.passes=1", "ticks=2", "world.num_clients=6", "evaluate_every=1"]


def roster(times_present: list[int], rounds: list[float]) -> Roster:
    some = np.array(rounds)
    supplies = Supplies(total=some, is_historical=some < 0, rounds=some)
    return replace(some_roster([0, 1, 2], 3, times_present=times_present), supplies=supplies)


def test_clients_train_in_the_first_share_of_their_rounds() -> None:
    # A quarter of 40, 40 and 8 rounds: 10, 10 and 2.
    assigned = Early(share=0.25).assign_weights(roster([9, 10, 2], [40.0, 40.0, 8.0]), num_params=7)
    assert assigned.tolist() == [1, 0, 0]


def test_with_share_one_clients_always_train() -> None:
    assert Early(share=1.0).assign_weights(roster([9, 0, 39], [10.0, 1.0, 40.0]), 7).tolist() == [
        1,
        1,
        1,
    ]


def test_all_samples_have_the_assigned_weight() -> None:
    ages, labels = np.array([1, 5, 9]), np.zeros(3, dtype=np.int64)
    assert Early().weigh(SampleAges(ages, labels, 1.0)).tolist() == [1, 1, 1]
    assert Early().weigh(SampleAges(ages, labels, 0.0)).tolist() == [0, 0, 0]


def test_a_roster_without_supplies_is_rejected() -> None:
    with pytest.raises(
        ConfigError, match=r"early needs the number of rounds(.|\n)*Roster.supplies"
    ):
        Early().assign_weights(some_roster([0], 3), 7)


def test_a_share_outside_zero_to_one_is_rejected() -> None:
    for bad in (0.0, 1.5, float("nan")):
        with pytest.raises(ConfigError, match="share"):
            Early(share=bad)


@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_after_the_first_part_the_model_is_constant_but_still_tested(engine: str) -> None:
    changes = [*SMALL, "world.availability=1.0", "sample_weights.share=0.5"]
    result = thalweg.run("static", "digits-full", rounds=6, engine=engine, overrides=changes)
    losses = [row["test_loss"] for row in result.metrics]
    assert losses[0] > losses[1] > losses[2] == losses[3] == losses[5]
    assert ["loss" in row for row in result.metrics] == [True] * 3 + [False] * 3
    assert all("prequential_accuracy" in row for row in result.metrics)
