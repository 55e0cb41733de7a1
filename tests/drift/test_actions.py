from __future__ import annotations

import pytest

from thalweg.core.config import from_dict, to_dict, with_overrides
from thalweg.core.errors import ConfigError
from thalweg.drift import (
    ACTIONS,
    CombinedActions,
    DropOutdated,
    Effect,
    OpenState,
    PageHinkley,
    Recluster,
    RecordOnly,
    ScaleLr,
    Shrink,
)


def test_effect_of_each_action() -> None:
    assert RecordOnly().effect() == Effect()
    assert Shrink(0.25).effect() == Effect(keep=0.25)
    assert Shrink().effect() == Effect(keep=0.0)
    assert DropOutdated(0.5).effect() == Effect(drop_margin=0.5)
    assert Recluster().effect() == Effect(reclusters=True)
    assert ScaleLr(3.0, rounds=2).effect() == Effect(lr_scales=(3.0, 3.0))
    assert OpenState().effect() == Effect(opens_state=True)


def test_combined_actions_have_the_effects_of_each() -> None:
    everything = CombinedActions(0.5, factor=2.0, rounds=1, recluster=True, open_state=True)
    assert everything.effect() == Effect(0.5, opens_state=True, reclusters=True, lr_scales=(2.0,))
    assert CombinedActions().effect() == RecordOnly().effect()
    assert CombinedActions(keep=0.0).effect() == Shrink().effect()
    assert CombinedActions(drop_margin=0.2).effect() == DropOutdated().effect()
    assert CombinedActions(factor=3.0, rounds=2).effect() == ScaleLr(3.0, rounds=2).effect()


def test_invalid_fields_are_rejected() -> None:
    for make in (
        lambda: Shrink(1.0),
        lambda: Shrink(-0.1),
        lambda: ScaleLr(0.0),
        lambda: ScaleLr(2, 0),
        lambda: DropOutdated(1.0),
        lambda: CombinedActions(drop_margin=-0.1),
    ):
        with pytest.raises(ConfigError):
            make()


def test_actions_can_be_set_by_overrides_and_stored() -> None:
    typed = with_overrides(
        PageHinkley(), ["action=combined", "action.keep=0.3", "action.recluster=true"]
    )
    assert typed.action == CombinedActions(keep=0.3, recluster=True)
    assert from_dict(PageHinkley, to_dict(typed)) == typed
    assert set(ACTIONS) == {
        "record-only",
        "shrink",
        "drop-outdated",
        "recluster",
        "scale-lr",
        "open-state",
        "combined",
    }
