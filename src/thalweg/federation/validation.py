"""Validates the updates that clients send. All later steps rely on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from thalweg.core.errors import NOT_FINITE, Diverged, ShapeMismatch
from thalweg.core.remedies import format_setting
from thalweg.core.types import Ints, Job, Rejection, Updates
from thalweg.core.vectors import find_finite_rows
from thalweg.federation.extensions.staleness import NO_REQUESTS


def match_updates(
    updates: Updates, jobs: Sequence[Job], rnd: int, open_requests: Ints = NO_REQUESTS
) -> Updates:
    """Keep one row per job of this round and per open request, and reject all other rows.

    The result ascends by client, then by the round in which each row was trained. It does not
    depend on the order of the rows received. `open_requests` (n, 2) are unanswered requests of
    earlier rounds, as client and round, for the only model of the bank. If several rows answer the
    same job, the first one counts. The extra metrics count missing clients, rejected rows and late
    rows.
    """
    trained_in = updates.trained_in
    expected = {(job.client, rnd, job.model) for job in jobs}
    if trained_in is None:
        trained_in = np.full(len(updates), rnd)
    else:
        expected |= {(client, then, 0) for client, then in open_requests.tolist()}
    rows: dict[tuple[int, int, int], int] = {}
    columns = (updates.clients.tolist(), trained_in.tolist(), updates.models.tolist())
    for row, key in enumerate(zip(*columns, strict=True)):
        if key in expected:
            rows.setdefault(key, row)
    order = np.array([rows[key] for key in sorted(rows)], dtype=np.int64)
    trained_in = trained_in[order]
    missing = {job.client for job in jobs} - {client for client, then, _ in rows if then == rnd}
    extra_metrics = {
        **updates.extra_metrics,
        **_count_metrics(updates, len(missing), rnd - trained_in),
    }
    rejections = (*updates.rejections, *_find_rejections(updates, order))
    if not np.array_equal(order, np.arange(len(updates))):
        updates = updates.take(order)  # copies the (K, P) matrix
    is_late = bool((trained_in < rnd).any())
    return replace(
        updates,
        extra_metrics=extra_metrics,
        rejections=rejections,
        trained_in=trained_in if is_late else None,
    )


def validate_updates(updates: Updates, rnd: int, num_params: int) -> None:
    """Check that updates have one column per parameter and contain only finite numbers."""
    if updates.deltas.shape != (len(updates), num_params):
        raise ShapeMismatch(
            f"round {rnd + 1}: the updates have shape {updates.deltas.shape}, expected "
            f"{(len(updates), num_params)}: one row per client, one column per parameter."
        )
    finite = find_finite_rows(updates.deltas)
    for values in (updates.losses, *updates.reports.values()):
        finite &= np.isfinite(values) | (updates.num_steps == 0)
    for upload in updates.uploads.values():
        finite &= np.isfinite(upload).all(axis=1)
    if not finite.all():
        broken = updates.clients[~finite].tolist()
        raise Diverged(
            f"round {rnd + 1}: the loss, a report or the update of client {broken[0]}"
            + (f" (and {len(broken) - 1} more)" if len(broken) > 1 else "")
            + f" {NOT_FINITE}. Try a smaller learning rate ({format_setting('local.lr')}) or less "
            "momentum; the rounds before this one are kept."
        )


def _find_rejections(received: Updates, accepted: Ints) -> list[Rejection]:
    """Return a rejection for each row that was not accepted."""
    others = np.setdiff1d(np.arange(len(received)), accepted)
    reason = "its update was not asked for, came twice, or came too late."
    return [Rejection(client, reason) for client in received.clients[others].tolist()]


def _count_metrics(received: Updates, num_missing: int, staleness: Ints) -> dict[str, Any]:
    """Return the counts for the metrics, given the staleness of the accepted rows.

    Without zeros.
    """
    late = staleness[staleness > 0]
    counts = {
        "missing": num_missing,
        "rejected": received.extra_metrics.get("rejected", 0) + len(received) - len(staleness),
        "late": len(late),
        "mean_staleness": float(late.mean()) if len(late) else 0,
    }
    return {name: count for name, count in counts.items() if count}
