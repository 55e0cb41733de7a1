"""Scores of drift alarms: delays, missed drifts and false alarms."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from thalweg.evaluation import alarm_scores, alarm_summary
from thalweg.evaluation.alarms import DriftRecord, KindScores, read_alarms

CHANGES: list[DriftRecord] = [
    (10, 0, "real"),
    (20, 0, "virtual"),
    (10, 1, "real"),
    (10, 1, "virtual"),
]
EVENTS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), max_size=30)
KINDS = st.sampled_from(["real", "virtual", "label"])


def test_delays_missed_and_false_alarms_by_hand() -> None:
    scores = alarm_scores([(3, 0), (12, 0), (15, 0), (24, 0), (10, 2)], CHANGES)
    assert scores.raised == 5
    assert scores.drifts == 3, "two kinds at once at one client are one drift"
    assert scores.missed == 1, "that of client 1"
    assert scores.mean_delay == 3.0, "2 and 4 rounds"
    assert scores.false_alarms == 3, "too early, a second time, and at a client that never drifts"
    assert scores.by_kind == {
        "real": KindScores(drifts=2, missed=1, mean_delay=2.0),
        "virtual": KindScores(drifts=2, missed=1, mean_delay=4.0),
    }


def test_alarm_in_the_round_of_the_drift_has_no_delay() -> None:
    scores = alarm_scores([(10, 0)], [(10, 0, "real")])
    assert (scores.mean_delay, scores.missed, scores.false_alarms) == (0.0, 0, 0)


def test_alarm_after_the_next_drift_does_not_detect_the_first() -> None:
    scores = alarm_scores([(20, 0)], [(10, 0, "real"), (20, 0, "real")])
    assert (scores.missed, scores.mean_delay) == (1, 0.0)


def test_alarm_beyond_the_maximum_delay_is_false() -> None:
    assert alarm_scores([(15, 0)], [(10, 0, "real")], within=5).missed == 0
    scores = alarm_scores([(15, 0)], [(10, 0, "real")], within=4)
    assert (scores.missed, scores.false_alarms, scores.mean_delay) == (1, 1, None)


def test_alarms_in_all_rounds_miss_no_drift_and_are_mostly_false() -> None:
    always = [(rnd, client) for rnd in range(30) for client in range(2)]
    scores = alarm_scores(always, CHANGES)
    assert (scores.missed, scores.mean_delay) == (0, 0.0)
    assert scores.false_alarms == 60 - 3


def test_without_alarms_or_without_drifts_the_scores_are_defined() -> None:
    silent = alarm_scores([], CHANGES)
    assert (silent.missed, silent.false_alarms, silent.mean_delay) == (3, 0, None)
    calm = alarm_scores([(1, 0), (2, 0)], [])
    assert (calm.drifts, calm.false_alarms, calm.mean_delay, calm.by_kind) == (0, 2, None, {})


@given(raised=EVENTS, changes=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3), KINDS)))
def test_each_alarm_is_false_or_detects_one_drift(
    raised: list[tuple[int, int]], changes: list[DriftRecord]
) -> None:
    scores = alarm_scores(raised, changes)
    assert scores.raised == len(set(raised))
    assert scores.raised - scores.false_alarms == scores.drifts - scores.missed
    assert scores.false_alarms >= 0
    # Who was there once more after the last drift has noticed it.
    ends = [(31, client) for client in range(4)]
    assert alarm_scores([*raised, *ends], changes).missed <= scores.missed


def test_alarms_and_drifts_are_read_from_metrics_with_rounds_from_one() -> None:
    rows = [
        {"round": 4},
        {"round": 5, "drifts": {"real": [7]}},
        {"round": 6, "alarms": [7]},
        {"round": 7, "alarms": [1, 7]},
    ]
    assert read_alarms(rows) == [(5, 7), (6, 1), (6, 7)]
    summary = alarm_summary(rows, are_drifts_known=True)
    assert summary["mean_delay"] == 1.0
    assert summary["false_alarms"] == 2
    assert summary["by_kind"] == {"real": {"drifts": 1, "missed": 0, "mean_delay": 1.0}}


def test_alarms_without_known_drifts_have_no_scores() -> None:
    assert alarm_summary([{"round": 1, "alarms": [0]}], are_drifts_known=False) == {"raised": 1}
