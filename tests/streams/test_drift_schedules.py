from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from thalweg.core.config import build as build_part
from thalweg.core.config import to_dict, with_overrides
from thalweg.core.errors import ConfigError
from thalweg.core.transforms import Mirrored, Plain, Rotated
from thalweg.core.views import View
from thalweg.streams import (
    DRIFTS,
    Drift,
    DriftTable,
    Gradual,
    Incremental,
    RecurringDrift,
    Setting,
    Staggered,
    Sudden,
)

SETTING = Setting(np.arange(30) % 3, 3, ticks=1, capacity=8, rounds=12, seed=4)


def view_table(drift: Drift, num_clients: int = 3, seed: int = 4) -> list[list[int]]:
    """For every round the view of every client."""
    setting = Setting(SETTING.labels, 3, 1, 8, 12, seed)
    timeline = drift.timeline(num_clients, setting)
    return [timeline.at(rnd).tolist() for rnd in range(12)]


def test_sudden_drift_switches_all_clients_in_one_round() -> None:
    assert view_table(Sudden(at=5)) == [[0, 0, 0]] * 5 + [[1, 1, 1]] * 7
    assert Sudden(at=5).timeline(3, SETTING).views[1].labels == (2, 1, 0), "labels are reversed"
    assert view_table(Sudden(at=50)) == [[0, 0, 0]] * 12, "after the run"


def test_share_of_drifting_clients_is_drawn_from_the_seed() -> None:
    some = [tuple(view_table(Sudden(at=0, share=0.5), 10, seed)[0]) for seed in range(5)]
    assert {sum(views) for views in some} == {5}
    assert len(set(some)) > 1
    assert some[2] == tuple(view_table(Sudden(at=0, share=0.5), 10, 2)[0])
    assert sum(view_table(Sudden(at=0, share=0.01), 10)[0]) == 1, "at least one"
    assert view_table(Sudden(at=0), 1)[0] == [1], "one client is enough"


def test_gradual_drift_raises_the_share_of_the_new_view_linearly() -> None:
    timeline = Gradual(start=4, until=7).timeline(2, SETTING)
    assert [timeline.view_transition(1, rnd)[2] for rnd in range(3, 9)] == [
        1.0,
        0.25,
        0.5,
        0.75,
        1.0,
        1.0,
    ]
    assert view_table(Gradual(start=4, until=4)) == view_table(Sudden(at=4))


def test_incremental_drift_rotates_images_in_steps() -> None:
    timeline = Incremental(degrees=100.0, every=3).timeline(2, SETTING)
    seen = [timeline.views[timeline.at(rnd)[0]].transform for rnd in range(12)]
    expected = [Plain(), Rotated(100.0), Rotated(200.0), Rotated(300.0)]
    assert seen == [transform for transform in expected for _ in range(3)]
    assert [event.kind for event in timeline.drift_events(12)] == ["virtual"] * 6
    whole = Incremental(degrees=180.0, every=1).timeline(1, SETTING)
    assert whole.views == (View(), View(Rotated(180.0))), "a whole turn is where it began"


def test_recurring_drift_cycles_through_its_views() -> None:
    views = (View(labels=1), View(), View(Mirrored()))
    assert [row[0] for row in view_table(RecurringDrift(period=2, views=views))] == [
        *(1, 1, 0, 0, 2, 2),
        *(1, 1, 0, 0, 2, 2),
    ]
    assert view_table(RecurringDrift(period=2, views=(View(),))) == [[0, 0, 0]] * 12


def test_staggered_drift_reaches_clients_one_after_the_other() -> None:
    rows = view_table(Staggered(at=2, lag=3))
    assert [sum(row) for row in rows] == [0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3]
    assert rows[2] == [1, 0, 0]
    assert view_table(Staggered(at=2, lag=0)) == view_table(Sudden(at=2))
    assert view_table(Staggered(at=11, lag=10**9)) == [[0, 0, 0]] * 11 + [[1, 0, 0]], (
        "most never do"
    )


@pytest.mark.parametrize(
    "drift",
    [
        *(drift() for drift in DRIFTS.values()),
        Sudden(at=3, to=View(Rotated(30.0), (1, 0, 2))),
        RecurringDrift(views=(View(Mirrored()), View(labels=2))),
        DriftTable(lines=((0, 3, 1, 90.0), (2, 4, 0, 0.0))),
    ],
)
def test_drift_round_trips_through_its_configuration(drift: Any) -> None:
    assert build_part(DRIFTS, to_dict(drift, DRIFTS), "drift") == drift


def test_drift_fields_can_be_overridden() -> None:
    words = ["at=3", "to.transform=rotated", "to.transform.degrees=30", "to.labels=none"]
    assert with_overrides(Sudden(), words) == Sudden(3, View(Rotated(30.0)))
    words = ['views=[{}, {transform = "mirrored"}, {labels = 2}]', "period=4"]
    assert with_overrides(RecurringDrift(), words) == RecurringDrift(
        4, (View(), View(Mirrored()), View(labels=2))
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sudden(at=-1), r"at must lie in \[0, 2147483648\), got -1"),
        (lambda: Sudden(at=2**31), "at must lie in"),
        (lambda: Gradual(until=2**40), "until must lie in"),
        (lambda: Sudden(share=0.0), "share must lie in"),
        (lambda: Gradual(start=5, until=4), "start=5 and until=4"),
        (lambda: Incremental(every=0), "every must be at least 1"),
        (lambda: RecurringDrift(period=0), "period must be at least 1"),
        (lambda: RecurringDrift(views=()), "at least one view"),
        (lambda: Staggered(lag=-1), "lag must lie in"),
        (
            lambda: Sudden(to=View(labels=9)).timeline(2, SETTING),
            "there are concepts 0 to 3, got 9",
        ),
    ],
)
def test_invalid_drifts_are_rejected(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
