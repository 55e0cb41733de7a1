"""Contract of selection rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from contracts.checkpoint import round_trip, to_comparable
from contracts.examples import some_roster
from contracts.labelled_context import some_context
from thalweg.core.capabilities import CountsLabels, ExtraMetrics, RecordsChoices, Surveys
from thalweg.core.types import Roster
from thalweg.selection import Selection

REPORTED = {"shift_score": np.array([0.5, np.nan, 1.5, np.nan, 0.25, 2.0])}
ROSTERS = (
    some_roster([], 6),
    some_roster([3], 6),
    some_roster([0, 2, 5], 6),
    some_roster(range(6), 6, rnd=0, times_present=[0] * 6),
    some_roster(range(6), 6, known=REPORTED),
    some_roster(range(0, 1000, 2), 1000, rnd=99),
)
NUM_CLASSES = 3
COMPLETE = ("last_chosen", "rounds_waited")  # written by a rule for all clients, not reported
SEEDS = range(20)


def check_selection(rule: Selection) -> None:
    """Check a rule with no, some and all clients present, before and after reports."""
    written = repr(rule)
    for roster in (*ROSTERS, *(random_roster(seed) for seed in SEEDS)):
        _check_choice(rule, roster)
    if isinstance(rule, CountsLabels):
        _check_label_counts(rule)
    if isinstance(rule, Surveys):
        _check_survey(rule)
    assert repr(rule) == written, "a rule object does not change"


def random_roster(seed: int) -> Roster:
    """Return a roster with random present clients and random known reports."""
    rng = np.random.default_rng(seed)
    num_clients = int(rng.integers(1, 15))
    present = np.flatnonzero(rng.random(num_clients) < rng.choice([0.0, 0.5, 1.0]))
    counts = rng.poisson(2.0, (num_clients, NUM_CLASSES)) * rng.integers(0, 2, (num_clients, 1))
    tables: dict[str, Any] = {
        "label_counts": counts,
        "label_mix": counts / np.maximum(counts.sum(1, keepdims=True), 1),
        "epsilon_spent": rng.random((num_clients, 1)),
        "candidate_loss": rng.integers(-1, 3, (num_clients, 1)),
        "loss": rng.integers(0, 3, num_clients),
        "last_chosen": rng.integers(-1, 4, num_clients),
        "rounds_waited": rng.poisson(9.0, num_clients),
        "num_samples": rng.poisson(2.0, num_clients) * rng.integers(0, 100, num_clients),
    }
    known = {}
    for name, table in tables.items():
        if rng.random() < 0.8:
            known[name] = table.astype(np.float64)
            if name not in COMPLETE:
                known[name][rng.random(num_clients) < rng.choice([0.0, 0.3, 1.0])] = np.nan
    return some_roster(present.tolist(), num_clients, known=known)


def _check_choice(rule: Selection, roster: Roster) -> None:
    before = to_comparable(vars(roster))
    present = set(roster.present.tolist())
    for seed in SEEDS:
        chosen = rule.choose(roster, np.random.default_rng(seed))
        assert chosen.ndim == 1, "ids are one-dimensional"
        assert chosen.dtype == np.int64, "ids are int64"
        assert set(chosen.tolist()) <= present, "only present clients"
        assert len(set(chosen.tolist())) == len(chosen), "no client twice"
        again = rule.choose(roster, np.random.default_rng(seed))
        assert chosen.tolist() == again.tolist(), "same generator, same choice"
        if isinstance(rule, ExtraMetrics):
            _check_extra_metrics(rule, roster, chosen)
        if isinstance(rule, RecordsChoices):
            _check_record(rule, roster, chosen)
    assert to_comparable(vars(roster)) == before, "the roster does not change"


def _check_extra_metrics(rule: ExtraMetrics, roster: Roster, chosen: Any) -> None:
    for value in rule.extra_metrics(roster, chosen).values():
        assert np.isfinite(value).all(), "metrics are finite"
        assert isinstance(value, (float, list)), "metrics can be written as JSON"


def _check_record(rule: RecordsChoices, roster: Roster, chosen: Any) -> None:
    for values in rule.record_choice(roster, chosen).values():
        assert values.shape == (roster.num_clients,), "a number for each client"
        assert values.dtype == np.float64, "records are float64"
        assert np.isfinite(values).all(), "records are finite"


def _check_label_counts(rule: CountsLabels) -> None:
    first = rule.init_counts(NUM_CLASSES)
    written = to_comparable(first)
    label_counts = first
    for labels in ([0, 2], [], [1] * 5, [2]):
        label_counts = rule.count_labels(label_counts, np.array(labels, dtype=np.int64))
        restored = round_trip(label_counts, rule.init_counts(NUM_CLASSES))
        assert to_comparable(restored) == to_comparable(label_counts), (
            "a checkpoint restores the counts"
        )
    assert to_comparable(first) == written, "counting does not change the old counts"


def _check_survey(rule: Any) -> None:
    assert isinstance(rule.sends_models, bool), "sends_models is a bool"
    for roster in (*ROSTERS, *(random_roster(seed) for seed in SEEDS)):
        surveyed = rule.choose_surveyed(roster, np.random.default_rng(0))
        assert surveyed.dtype == np.int64, "ids are int64"
        assert set(surveyed.tolist()) <= set(roster.present.tolist()), "only present clients"
        assert len(set(surveyed.tolist())) == len(surveyed), "no client twice"
        again = rule.choose_surveyed(roster, np.random.default_rng(0))
        assert surveyed.tolist() == again.tolist(), "same generator, same survey"
    for labels in ([], [1], [0, 1, 2, 2] * 40):
        _check_answer(rule, labels)


def _check_answer(rule: Any, labels: list[int]) -> None:
    def answer() -> tuple[Any, Any]:
        label_counts = rule.init_counts(NUM_CLASSES) if isinstance(rule, CountsLabels) else None
        context = some_context(labels, num_classes=NUM_CLASSES, label_counts=label_counts)
        written = to_comparable((context.held, label_counts))
        result = rule.answer_survey(context)
        assert to_comparable((context.held, label_counts)) == written, "the context does not change"
        return to_comparable(result[0]), {
            name: to_comparable(value) for name, value in result[1].items()
        }

    assert answer() == answer(), "same generator, same response"
    label_counts = rule.init_counts(NUM_CLASSES) if isinstance(rule, CountsLabels) else None
    after, uploads = rule.answer_survey(
        some_context(labels, num_classes=NUM_CLASSES, label_counts=label_counts)
    )
    assert to_comparable(round_trip(after, label_counts)) == to_comparable(after), (
        "a checkpoint restores the counts"
    )
    for vector in uploads.values():
        assert vector.ndim == 1, "uploads are vectors"
        assert vector.dtype == np.float64, "uploads are float64"
        assert np.isfinite(vector).all(), "uploads are finite"
