"""The server's door: what clients send is put in order and checked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from thalweg.core.errors import Diverged, ShapeMismatch
from thalweg.core.types import Job, Updates


def asked_for(updates: Updates, jobs: Sequence[Job]) -> Updates:
    """One row per job at most, ascending by client, whatever came and in which order.

    The first row of a job counts. The metrics say how many clients are missing and how many rows were
    refused, if any.
    """
    rows: dict[tuple[int, int], int] = {}
    for row, job in enumerate(zip(updates.clients.tolist(), updates.models.tolist(), strict=True)):
        rows.setdefault(job, row)
    wanted = sorted(job[:2] for job in jobs)
    order = np.array([rows[job] for job in wanted if job in rows], dtype=np.int64)
    refused = updates.remarks.get("refused", 0) + len(updates) - len(order)
    counts = {"missing": len(jobs) - len(order), "refused": refused}
    remarks = {**updates.remarks, **{name: count for name, count in counts.items() if count}}
    if not np.array_equal(order, np.arange(len(updates))):
        updates = updates.take(order)  # copies the big matrix
    return replace(updates, remarks=remarks)


def admit(updates: Updates, rnd: int, num_params: int) -> None:
    """Check updates once, at the server's door; every rule behind it may trust them."""
    if updates.deltas.shape != (len(updates), num_params):
        raise ShapeMismatch(
            f"round {rnd + 1}: the updates have shape {updates.deltas.shape}, expected "
            f"{(len(updates), num_params)}: one row per client, one column per parameter."
        )
    finite = np.isfinite(updates.deltas).all(axis=1)
    for values in (updates.losses, *updates.reports.values()):
        finite &= np.isfinite(values) | (updates.num_steps == 0)
    for message in updates.said.values():
        finite &= np.isfinite(message).all(axis=1)
    if not finite.all():
        broken = updates.clients[~finite].tolist()
        raise Diverged(
            f"round {rnd + 1}: the loss, a report or the update of client {broken[0]}"
            + (f" (and {len(broken) - 1} more)" if len(broken) > 1 else "")
            + " is not a finite number. Try a smaller learning rate (--set local.lr=...) or less "
            "momentum; the rounds before this one are kept."
        )
