"""The server's door: what clients send is put in order and checked once.

The server waits for replies that did not come in time if the recipe's rule of staleness wants them. It remembers
its open orders as rows (client, round), for a while, and lets in one reply to each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from thalweg.aggregation import Staleness
from thalweg.core.errors import Diverged, ShapeMismatch
from thalweg.core.types import Ints, Job, Rejection, Updates

MAX_WAIT = 64  # rounds that an order stays open at most, so that a long run remembers no more
NO_REQUESTS: Ints = np.empty((0, 2), dtype=np.int64)


def match_updates(
    updates: Updates, jobs: Sequence[Job], rnd: int, open_requests: Ints = NO_REQUESTS
) -> Updates:
    """One row per job of this round and per awaited order at most, whatever came and in which order.

    Ascending by client, then by the round each was trained in. `open_requests` (n, 2) are the open orders of earlier
    rounds, by client and round, all of the bank's only model. The first row of a job or an order counts. The
    metrics say how many clients are missing, how many rows were refused, how many are late and by how much, if any.
    """
    trained_in = updates.trained_in
    wanted = {(job.client, rnd, job.model) for job in jobs}
    if trained_in is None:
        trained_in = np.full(len(updates), rnd)
    else:
        wanted |= {(client, then, 0) for client, then in open_requests.tolist()}
    rows: dict[tuple[int, int, int], int] = {}
    columns = (updates.clients.tolist(), trained_in.tolist(), updates.models.tolist())
    for row, key in enumerate(zip(*columns, strict=True)):
        if key in wanted:
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
        updates = updates.take(order)  # copies the big matrix
    is_late = bool((trained_in < rnd).any())
    return replace(
        updates,
        extra_metrics=extra_metrics,
        rejections=rejections,
        trained_in=trained_in if is_late else None,
    )


def _find_rejections(came: Updates, let_in: Ints) -> list[Rejection]:
    """Of the rows that were not let in."""
    others = np.setdiff1d(np.arange(len(came)), let_in)
    why = "its update was not asked for, came twice, or came too late."
    return [Rejection(client, why) for client in came.clients[others].tolist()]


def _count_metrics(came: Updates, num_missing: int, staleness: Ints) -> dict[str, Any]:
    """What the metrics say about rows that came, given the staleness of those that were let in."""
    late = staleness[staleness > 0]
    counts = {
        "missing": num_missing,
        "rejected": came.extra_metrics.get("rejected", 0) + len(came) - len(staleness),
        "late": len(late),
        "mean_staleness": float(late.mean()) if len(late) else 0,
    }
    return {name: count for name, count in counts.items() if count}


# --- orders that nobody has answered yet ---


def max_wait(rule: Staleness) -> int:
    """Rounds that the server waits for the reply to an order; 0: not beyond its own."""
    return MAX_WAIT if rule.max_staleness is None else min(rule.max_staleness, MAX_WAIT)


def drop_expired(open_requests: Ints, rnd: int, rule: Staleness) -> Ints:
    """The orders (n, 2) whose replies are let in in round `rnd`: none that is too old by then."""
    return open_requests[rnd - open_requests[:, 1] <= max_wait(rule)]


def update_open_requests(
    open_requests: Ints, jobs: Sequence[Job], received: Updates, rnd: int, rule: Staleness
) -> Ints:
    """The orders (n, 2) that are open after round `rnd`: its own that nobody answered, and older ones.

    An older one is closed by any newer reply of the same client, so that the server hears each client's things in
    the order in which they happened: the newest report is the one that is known, and so are the newest words.
    """
    if max_wait(rule) == 0:
        return NO_REQUESTS
    asked = np.array([(job.client, rnd) for job in jobs], dtype=np.int64).reshape(-1, 2)
    orders = np.concatenate([open_requests, asked])
    newest = np.full(orders[:, 0].max(initial=-1) + 1, -1)
    newest[received.clients] = rnd - received.staleness(
        rnd
    )  # rows ascend, so that the last one stays
    return drop_expired(orders[orders[:, 1] > newest[orders[:, 0]]], rnd + 1, rule)


# --- what is in them ---


def validate_updates(updates: Updates, rnd: int, num_params: int) -> None:
    """Check updates once, at the server's door; every rule behind it may trust them."""
    if updates.deltas.shape != (len(updates), num_params):
        raise ShapeMismatch(
            f"round {rnd + 1}: the updates have shape {updates.deltas.shape}, expected "
            f"{(len(updates), num_params)}: one row per client, one column per parameter."
        )
    finite = np.isfinite(updates.deltas).all(axis=1)
    for values in (updates.losses, *updates.reports.values()):
        finite &= np.isfinite(values) | (updates.num_steps == 0)
    for message in updates.uploads.values():
        finite &= np.isfinite(message).all(axis=1)
    if not finite.all():
        broken = updates.clients[~finite].tolist()
        raise Diverged(
            f"round {rnd + 1}: the loss, a report or the update of client {broken[0]}"
            + (f" (and {len(broken) - 1} more)" if len(broken) > 1 else "")
            + " is not a finite number. Try a smaller learning rate (--set local.lr=...) or less "
            "momentum; the rounds before this one are kept."
        )
