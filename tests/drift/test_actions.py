from __future__ import annotations

import pytest

from thalweg.core.config import from_dict, to_dict, with_overrides
from thalweg.core.errors import ConfigError
from thalweg.drift import (
    ACTIONS,
    Both,
    Effect,
    Hurry,
    Note,
    OpenState,
    PageHinkley,
    Recluster,
    Shrink,
)


def test_every_action_has_its_effect() -> None:
    assert Note().effect() == Effect()
    assert Shrink(0.25).effect() == Effect(keep=0.25)
    assert Shrink().effect() == Effect(keep=0.0), "all of it goes"
    assert Recluster().effect() == Effect(reclusters=True)
    assert Hurry(3.0, rounds=2).effect() == Effect(paces=(3.0, 3.0))
    assert OpenState().effect() == Effect(opens_state=True)


def test_several_actions_are_one() -> None:
    both = Both(Both(Shrink(0.5), OpenState()), Both(Recluster(), Hurry(2.0, rounds=1)))
    assert both.effect() == Effect(0.5, opens_state=True, reclusters=True, paces=(2.0,))
    assert Both(Shrink(0.5), Shrink(0.2)).effect().keep == 0.2
    assert Both(Hurry(2.0, 3), Hurry(0.5, 1)).effect().paces == (1.0, 2.0, 2.0)


def test_what_is_impossible_is_refused() -> None:
    for make in (
        lambda: Shrink(1.0),
        lambda: Shrink(-0.1),
        lambda: Hurry(0.0),
        lambda: Hurry(2, 0),
    ):
        with pytest.raises(ConfigError):
            make()


def test_actions_can_be_typed_and_written_to_a_file() -> None:
    typed = with_overrides(
        PageHinkley(),
        [
            "action=both",
            "action.first.keep=0.3",
            "action.second=both",
            "action.second.first=recluster",
            "action.second.second.rounds=7",
        ],
    )
    assert typed.action == Both(Shrink(0.3), Both(Recluster(), Hurry(rounds=7)))
    assert from_dict(PageHinkley, to_dict(typed)) == typed
    assert set(ACTIONS) == {"note", "shrink", "recluster", "hurry", "open-state", "both"}
