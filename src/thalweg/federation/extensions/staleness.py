"""Late updates: the server keeps unanswered requests and accepts their updates in later rounds.

The staleness rule of the recipe defines how long the server waits and how much a late update
counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from thalweg.aggregation import Staleness
from thalweg.core.types import Floats, Ints, Job, Updates
from thalweg.federation.extensions.base import RoundExtension
from thalweg.recipes.base import Recipe

if TYPE_CHECKING:
    from thalweg.federation.context import RoundContext

MAX_WAIT = 64  # rounds after which the server drops a request; bounds the size of its state
NO_REQUESTS: Ints = np.empty((0, 2), dtype=np.int64)


class LateUpdates(RoundExtension):
    """Accepts updates of earlier rounds and multiplies their weights by the staleness factor."""

    def is_used_by(self, recipe: Recipe) -> bool:
        return max_wait(recipe.staleness) > 0

    def before_training(self, ctx: RoundContext) -> None:
        ctx.open_requests = drop_expired(ctx.server.open_requests, ctx.rnd, ctx.recipe.staleness)

    def adjust_weights(self, ctx: RoundContext, updates: Updates, weights: Floats) -> Floats:
        if updates.trained_in is None:
            return weights
        return weights * ctx.recipe.staleness.factor(updates.staleness(ctx.rnd))

    def finish_round(self, ctx: RoundContext) -> None:
        assert ctx.updates is not None
        open_requests = NO_REQUESTS
        if len(ctx.server.bank) == 1:  # models of a larger bank may change their positions
            open_requests = update_open_requests(
                ctx.server.open_requests, ctx.jobs, ctx.updates, ctx.rnd, ctx.recipe.staleness
            )
        ctx.server = ctx.server._replace(open_requests=open_requests)


def max_wait(rule: Staleness) -> int:
    """Return for how many rounds the server waits for a late update; 0: only for its own round."""
    return MAX_WAIT if rule.max_staleness is None else min(rule.max_staleness, MAX_WAIT)


def drop_expired(open_requests: Ints, rnd: int, rule: Staleness) -> Ints:
    """Return the requests (n, 2) whose updates are still accepted in round `rnd`."""
    return open_requests[rnd - open_requests[:, 1] <= max_wait(rule)]


def update_open_requests(
    open_requests: Ints, jobs: Sequence[Job], received: Updates, rnd: int, rule: Staleness
) -> Ints:
    """Return the requests (n, 2), as client and round, that are open after round `rnd`.

    An update closes its own request and all older requests of the same client, so that the updates
    of one client are always processed in the order in which it trained.
    """
    if max_wait(rule) == 0:
        return NO_REQUESTS
    sent = np.array([(job.client, rnd) for job in jobs], dtype=np.int64).reshape(-1, 2)
    requests = np.concatenate([open_requests, sent])
    newest = np.full(requests[:, 0].max(initial=-1) + 1, -1)
    # The rows of a client ascend by round, so that the last assignment wins.
    newest[received.clients] = rnd - received.staleness(rnd)
    return drop_expired(requests[requests[:, 1] > newest[requests[:, 0]]], rnd + 1, rule)
