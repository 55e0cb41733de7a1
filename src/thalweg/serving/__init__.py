"""Serving: which of its predictors a client uses.

To add a policy, write a class with the methods of `Serving` and add it to `SERVINGS`.
"""

from thalweg.serving.base import (
    ADJUSTED,
    AVERAGED,
    LAST_LABEL,
    LATEST,
    MODEL,
    OPTIONAL,
    TRAINED,
    AdjustsModel,
    ArrivedSamples,
    RestartsServing,
    ServesTogether,
    Serving,
)
from thalweg.serving.best_recent import BestRecent  # fixed share over recent losses

SERVINGS = {"best-recent": BestRecent}

__all__ = [
    "ADJUSTED",
    "AVERAGED",
    "LAST_LABEL",
    "LATEST",
    "MODEL",
    "OPTIONAL",
    "SERVINGS",
    "TRAINED",
    "AdjustsModel",
    "ArrivedSamples",
    "BestRecent",
    "RestartsServing",
    "ServesTogether",
    "Serving",
]
