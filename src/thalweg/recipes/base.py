"""A recipe: one choice for each stage. The stream is not part of it; it is what it is tried on."""

from __future__ import annotations

from dataclasses import dataclass, field

from thalweg.aggregation import SERVER_RULES, WEIGHTS, Equal, ServerRule, Step, Weights
from thalweg.core.config import choice
from thalweg.forecast import ORACLES, Exact, Forecast
from thalweg.local import OBJECTIVES, CrossEntropy, Objective, Sgd
from thalweg.memory import POLICIES, MemoryPolicy
from thalweg.selection import RULES, Available, Selection


@dataclass(frozen=True)
class Recipe:
    """A streaming federated learning algorithm. Any engine can run it on any world.

    A variant is a replacement: ``dataclasses.replace(sfedpo(), weights=Equal())``.
    """

    name: str
    memory: MemoryPolicy = choice(POLICIES)
    forecast: Forecast = choice(ORACLES, default=Exact())
    selection: Selection = choice(RULES, default=Available())
    objective: Objective = choice(OBJECTIVES, default=CrossEntropy())
    local: Sgd | None = field(default=None)
    """How a client trains; none: as the scenario says."""
    weights: Weights = choice(WEIGHTS, default=Equal())
    server: ServerRule = choice(SERVER_RULES, default=Step())
