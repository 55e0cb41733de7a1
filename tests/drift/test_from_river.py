from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import drift as river_drift

from contracts.alarm import find_alarms, find_river_alarms
from contracts.checkpoint import round_trip, to_comparable
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.drift import PageHinkley, RiverAlarm

VALUES = (
    np.repeat([0.1, 0.7, 0.2, 0.9], 40) + np.random.default_rng(3).uniform(-0.1, 0.1, 160)
).tolist()


@pytest.mark.parametrize(
    ("alarm", "detector"),
    [
        (RiverAlarm("ADWIN", "clock=1"), river_drift.ADWIN(clock=1)),
        (RiverAlarm("PageHinkley", "threshold=1.5"), river_drift.PageHinkley(threshold=1.5)),
        (
            RiverAlarm("KSWIN", "window_size=30,stat_size=10,seed=4"),
            river_drift.KSWIN(0.005, 30, 10, 4),
        ),
        (RiverAlarm("EDDM", watch="error"), river_drift.binary.EDDM()),
    ],
    ids=repr,
)
def test_first_alarm_equals_that_of_river(alarm: RiverAlarm, detector: Any) -> None:
    assert find_alarms(alarm, VALUES)[:1] == find_river_alarms(detector, VALUES)[:1]


def test_adwin_and_kswin_raise_several_alarms() -> None:
    assert len(find_alarms(RiverAlarm("ADWIN", "clock=1"), VALUES)) >= 2
    assert len(find_alarms(RiverAlarm("KSWIN", "window_size=30,stat_size=10"), VALUES)) >= 2


def test_river_page_hinkley_equals_our_own() -> None:
    theirs = RiverAlarm("PageHinkley", "min_instances=5,delta=0.05,threshold=0.5,alpha=1.0,mode=up")
    assert find_alarms(theirs, VALUES) == find_alarms(PageHinkley(), VALUES) != []


def test_values_are_cleared_after_an_alarm() -> None:
    alarm = RiverAlarm("PageHinkley", "min_instances=1,threshold=0.2")
    state, clients = alarm.init(2), np.array([1])
    for value in (0.1, 0.1, 0.1):
        state, _ = alarm.update(state, clients, np.array([value]))
    assert state.num.tolist() == [0, 3]
    assert state.values[1, :3].tolist() == [0.1, 0.1, 0.1]
    state, alarmed = alarm.update(state, clients, np.array([1.0]))
    assert alarmed.tolist() == [True]
    assert state.num.tolist() == [0, 0]
    assert not state.values.any()


class Mean:
    """A detector with River's interface only; it can be neither copied nor pickled."""

    def __init__(self, above: float = 0.5) -> None:
        self.drift_detected, self._above, self._values = False, above, [0.0][:0]
        self._no_pickle = sys._getframe()

    def update(self, x: float) -> None:
        self._values.append(x)
        self.drift_detected = sum(self._values) / len(self._values) > self._above


def test_custom_detector_needs_update_and_drift_detected_only(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "class Above:\n"
        "    drift_detected = False\n"
        "    def update(self, x):\n"
        "        self.drift_detected = x > 0.5\n"
    )
    assert find_alarms(RiverAlarm(f"{file}:Above"), [0.1, 0.6, 0.2, 0.7]) == [1, 3]
    ours = RiverAlarm(f"{__name__}:Mean", "above=0.3")
    assert find_alarms(ours, [0.1, 0.5, 0.4]) == [2]


def test_long_history_is_cut_identically_after_a_checkpoint() -> None:
    alarm = RiverAlarm(f"{__name__}:Mean", "above=0.6", max_values=6)
    state, clients = alarm.init(1), np.array([0])
    for place in range(6):
        state, _ = alarm.update(state, clients, np.array([0.1 * place]))
    assert state.num.tolist() == [3]
    assert state.values[0, :3].tolist() == pytest.approx([0.3, 0.4, 0.5])
    fresh = RiverAlarm(f"{__name__}:Mean", "above=0.6", max_values=6)
    restored = round_trip(state, fresh.init(1))
    here, alarmed = alarm.update(state, clients, np.array([1.4]))
    there, same = fresh.update(restored, clients, np.array([1.4]))
    assert alarmed.tolist() == same.tolist() == [True]  # (0.3 + 0.4 + 0.5 + 1.4) / 4 = 0.65
    assert to_comparable(here) == to_comparable(there)


def test_two_runs_with_the_same_alarm_object_are_independent() -> None:
    alarm = RiverAlarm("ADWIN", "clock=1")
    expected = find_alarms(RiverAlarm("ADWIN", "clock=1"), VALUES)
    one, two, client = alarm.init(1), alarm.init(1), np.array([0])
    found = []
    for place, value in enumerate(VALUES):
        one, alarmed = alarm.update(one, client, np.array([value]))
        two, _ = alarm.update(two, client, np.array([1 - value]))
        found += [place] * int(alarmed[0])
    assert found == expected


def test_unknown_detector_error_suggests_a_name() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'ADWIN'"):
        RiverAlarm("ADWNI").init(1)
    with pytest.raises(ConfigError, match="expected a class with update"):
        RiverAlarm(f"{__name__}:VALUES").init(1)


@pytest.mark.parametrize("text", ["clock", "clock=", "=1", "clock=1,delta", "a b=2"])
def test_malformed_settings_are_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="expected name=value"):
        RiverAlarm(settings=text)


def test_unknown_settings_are_rejected_before_the_run() -> None:
    alarm = RiverAlarm("ADWIN", "clok=1")
    with pytest.raises(ConfigError, match=r"cannot be created with alarm\.settings='clok=1'"):
        alarm.init(1)
    with pytest.raises(ConfigError, match="cannot be created"):
        alarm.check_world(None, 10)  # type: ignore[arg-type]


def test_error_without_river_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "river.drift", None)
    with pytest.raises(ConfigError, match=r"pip install 'thalweg\[river\]'"):
        RiverAlarm().init(1)


def test_random_detector_has_a_fixed_seed() -> None:
    first, second = (
        find_alarms(RiverAlarm("KSWIN", "window_size=30,stat_size=10"), VALUES) for _ in "ab"
    )
    assert first == second
