"""Averaged models for clients that choose among several predictors."""

from __future__ import annotations

import numpy as np

from thalweg.core.capabilities import Broadcast
from thalweg.federation.context import RoundContext
from thalweg.federation.extensions.base import RoundExtension
from thalweg.federation.server_state import eval_model
from thalweg.federation.serving import AVERAGES, STAGE
from thalweg.recipes.base import Recipe, list_predictors
from thalweg.serving import AVERAGED


class SentAverages(RoundExtension):
    """Sends the averaged version of each model of a job, as a predictor of the client."""

    def is_used_by(self, recipe: Recipe) -> bool:
        return AVERAGED in list_predictors(recipe)

    def before_training(self, ctx: RoundContext) -> None:
        models = [job.model for job in ctx.jobs]
        averages = {
            model: eval_model(ctx.recipe, ctx.server.rules[model], ctx.server.bank[model])
            for model in set(models)
        }
        rows = np.empty((len(models), ctx.server.bank.shape[1]), dtype=np.float32)
        if len(averages) == 1:  # one row in memory for all jobs
            rows = np.broadcast_to(averages[models[0]], rows.shape)
        else:
            for row, model in zip(rows, models, strict=True):
                row[:] = averages[model]
        sent: Broadcast = {STAGE: {AVERAGES: rows}}
        ctx.broadcast = {**ctx.broadcast, **sent}
