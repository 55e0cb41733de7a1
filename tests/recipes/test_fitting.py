from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from thalweg.aggregation import FedDrift
from thalweg.core.errors import ConfigError, require
from thalweg.core.types import Floats, Holding, Supplies
from thalweg.drift import OpenState, PageHinkley, Several
from thalweg.emphasis import InverseStay
from thalweg.forecast import Growing
from thalweg.recipes import fedavg
from thalweg.recipes.fitting import check_fits
from thalweg.streams import Inflow, Setting, World


@dataclass(frozen=True)
class OnlyTwo:
    """An emphasis for two classes and clients that have something."""

    def weigh(self, holding: Holding) -> Floats:
        return np.ones(len(holding.labels))

    def check_fits(self, supplies: Supplies, num_classes: int) -> None:
        require(num_classes == 2, f"two classes, please, not {num_classes}.")
        require(bool((supplies.total > 0).all()), "somebody has nothing.")


def world(num_classes: int) -> World:
    labels = np.arange(40) % num_classes
    return Inflow(num_clients=4).build(Setting(labels, num_classes, 1, 10, 5, 0))


def test_a_policy_that_is_particular_sees_the_world_before_it_runs() -> None:
    recipe = replace(fedavg(), emphasis=OnlyTwo())
    check_fits(recipe, world(2))
    with pytest.raises(ConfigError, match="two classes, please, not 3"):
        check_fits(recipe, world(3))


def test_policies_that_are_not_particular_go_anywhere() -> None:
    check_fits(replace(fedavg(), emphasis=InverseStay()), world(3))


def test_an_alarm_about_which_nothing_can_be_done_is_refused() -> None:
    opening = replace(fedavg(), alarm=PageHinkley(action=OpenState()))
    with pytest.raises(ConfigError, match="use forecast=growing"):
        check_fits(opening, world(2))
    check_fits(replace(opening, forecast=Growing()), world(2))
    clustering = replace(fedavg(), alarm=PageHinkley(action=Several(keep=0.5, recluster=True)))
    with pytest.raises(ConfigError, match="one model for everybody"):
        check_fits(clustering, world(2))
    check_fits(replace(clustering, bank=FedDrift()), world(2))
