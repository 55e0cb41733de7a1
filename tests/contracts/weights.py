"""Contract of weights rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from contracts.checkpoint import to_comparable
from contracts.examples import some_outlook, some_roster, some_updates
from thalweg.aggregation import MemorySummary, Reports, Weights
from thalweg.core.types import Outlook

OUTLOOKS = (
    some_outlook(),
    some_outlook(probs=(0.0, 1.0, 0.0)),
    some_outlook(heterogeneity=(0.0, 0.0, 0.0)),
    Outlook(np.ones(1), np.ones(1), np.zeros(1)),  # a world without latent states
)


def check_weights(rule: Weights) -> None:
    """Check the rule for one, a few and many clients, in the first and in a later round."""
    fields = repr(rule)
    # In the last two a client has late updates beside that of this round.
    for clients in ([2], [0, 3], [0, 1, 4, 5, 9], [3, 3], [0, 2, 2, 2, 5, 5]):
        for rnd in (0, 7):
            _check_cohort(rule, clients, rnd)
    assert repr(rule) == fields, "a rule object does not change"


def _check_cohort(rule: Weights, clients: list[int], rnd: int) -> None:
    size = len(clients)
    reports = _reports(rule, size)
    known = {name: np.full(10, np.nan) for name in reports} if rnd else {}
    for name in known:
        known[name][3:6] = reports[name][0]
    roster = some_roster(
        sorted({*clients}),
        10,
        rnd=rnd,
        availability=[0.01, 0.2, 0.5, 1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5],
        times_present=[min(rnd, n) for n in range(10)],
        known=known,
    )
    updates = some_updates(clients, 4, num_samples=[*range(size)], reports=reports)
    if rnd:
        updates = replace(updates, trained_in=rnd - (~updates.is_newest).astype(np.int64))
    arguments = to_comparable([vars(updates), vars(roster)])
    weights = rule.weigh(updates, roster)
    assert weights.shape == (size,), "one weight per update"
    assert weights.dtype == np.float64, "weights are in double precision"
    assert np.isfinite(weights).all(), "weights are finite"
    assert (weights >= 0).all(), "weights are not negative"
    assert 0 < weights.sum() <= 1 + 1e-9, "weights sum to one, or to less for a shorter step"
    assert rule.weigh(updates, roster).tolist() == weights.tolist(), (
        "equal arguments give equal results"
    )
    assert to_comparable([vars(updates), vars(roster)]) == arguments, "arguments do not change"


def _reports(rule: Weights, size: int) -> Mapping[str, list[float]]:
    """Return the reports of different clients, one number per client and name."""
    if not isinstance(rule, Reports):
        return {}
    rows = []
    for outlook in OUTLOOKS:
        for share in (0.0, 0.25, 1.0):  # a constant, a partly renewed and a new memory
            renewal = np.full(len(outlook.probs), share)
            mix = np.array([share, 1 - share, 0.0])
            summary = MemorySummary(outlook, renewal, ticks=5, total_weight=1 + share)
            summary = summary._replace(mass=0.5 + share, label_mix=mix, num_arrived=7)
            assert np.isfinite([*rule.report(summary).values()]).all(), (
                "reports are finite without embeddings"
            )
            summary = summary._replace(embeddings=np.eye(5)[: len(outlook.probs)])
            arguments = to_comparable(summary)
            report = dict(rule.report(summary))
            assert all(np.isfinite(value) for value in report.values()), "reports are finite"
            assert dict(rule.report(summary)) == report, "equal arguments give equal results"
            assert to_comparable(summary) == arguments, "arguments do not change"
            rows.append(report)
    assert len({tuple(row) for row in rows}) == 1, "all clients report the same names"
    return {name: [rows[k % len(rows)][name] for k in range(size)] for name in rows[0]}
