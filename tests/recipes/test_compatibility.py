from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from thalweg.bank import FedDaa, FedDrift
from thalweg.core.errors import ConfigError, require
from thalweg.core.types import Floats, SampleAges, Supplies
from thalweg.drift import CombinedActions, OpenState, PageHinkley
from thalweg.forecast import Growing
from thalweg.local import Scaffold
from thalweg.recipes import fedavg
from thalweg.recipes.compatibility import check_compatibility
from thalweg.sample_weights import InverseAge
from thalweg.streams import Inflow, Setting, Steps, World


@dataclass(frozen=True)
class OnlyTwo:
    """An emphasis for two classes and clients that have something."""

    def weigh(self, holding: SampleAges) -> Floats:
        return np.ones(len(holding.labels))

    def check_world(self, supplies: Supplies, num_classes: int) -> None:
        require(num_classes == 2, f"two classes, please, not {num_classes}.")
        require(bool((supplies.total > 0).all()), "somebody has nothing.")


def world(num_classes: int) -> World:
    labels = np.arange(40) % num_classes
    return Inflow(num_clients=4).build(Setting(labels, num_classes, 1, 10, 5, 0))


def test_a_policy_that_is_particular_sees_the_world_before_it_runs() -> None:
    recipe = replace(fedavg(), sample_weights=OnlyTwo())
    check_compatibility(recipe, world(2))
    with pytest.raises(ConfigError, match="two classes, please, not 3"):
        check_compatibility(recipe, world(3))


def test_policies_that_are_not_particular_go_anywhere() -> None:
    check_compatibility(replace(fedavg(), sample_weights=InverseAge()), world(3))


def test_an_alarm_about_which_nothing_can_be_done_is_refused() -> None:
    opening = replace(fedavg(), alarm=PageHinkley(action=OpenState()))
    with pytest.raises(ConfigError, match="use forecast=growing"):
        check_compatibility(opening, world(2))
    check_compatibility(replace(opening, forecast=Growing()), world(2))
    clustering = replace(
        fedavg(), alarm=PageHinkley(action=CombinedActions(keep=0.5, recluster=True))
    )
    with pytest.raises(ConfigError, match="one model for everybody"):
        check_compatibility(clustering, world(2))
    check_compatibility(replace(clustering, bank=FedDrift()), world(2))


def steps_world(rounds_per_step: int) -> World:
    spec = Steps(
        num_clients=4, rounds_per_step=rounds_per_step, concepts=((0, 1),), rotations=(0.0,)
    )
    return spec.build(Setting(np.arange(40) % 3, 3, 1, 10, rounds_per_step, 0))


def test_a_bank_that_goes_by_steps_must_have_those_of_the_world() -> None:
    for bank in (FedDaa(every=40), FedDaa(every=1), FedDrift(every=40)):
        with pytest.raises(ConfigError, match=r"steps of 5 rounds.*set bank\.every=5 \(or world"):
            check_compatibility(replace(fedavg(), bank=bank), steps_world(5))
        check_compatibility(replace(fedavg(), bank=bank), world(2))
    for bank in (FedDaa(every=5), FedDaa(every=None), FedDrift(every=5), FedDrift(every=1)):
        check_compatibility(replace(fedavg(), bank=bank), steps_world(5))


def test_scaffold_has_one_mean_gradient_and_so_one_model() -> None:
    recipe = replace(fedavg(), objective=Scaffold())
    check_compatibility(recipe, world(2))
    with pytest.raises(ConfigError, match="the bank FedDrift has several; use bank=one-model"):
        check_compatibility(replace(recipe, bank=FedDrift()), world(2))
