"""A recipe: one choice for each stage. The stream is not part of it; it is what it is tried on."""

from __future__ import annotations

from dataclasses import dataclass, field

from thalweg.aggregation import (
    ROBUST,
    SECURE_AGGREGATIONS,
    SERVER_RULES,
    STALENESS,
    WEIGHTS,
    Equal,
    Masked,
    RejectLate,
    Robust,
    ServerRule,
    Staleness,
    Step,
    Weights,
)
from thalweg.bank import BANKS, Bank, OneModel
from thalweg.core.config import choice
from thalweg.core.errors import require
from thalweg.drift import ALARMS, Alarm, Effect, resolve_effect
from thalweg.forecast import FORECASTS, Exact, Forecast
from thalweg.local import (
    GEOMETRIES,
    OBJECTIVES,
    PRIVACIES,
    STOPPINGS,
    CrossEntropy,
    Euclidean,
    Geometry,
    Objective,
    Privacy,
    Sgd,
    Stopping,
)
from thalweg.memory import POLICIES, MemoryPolicy
from thalweg.sample_weights import SAMPLE_WEIGHTS, SampleWeights
from thalweg.selection import RULES, Available, Selection
from thalweg.sessions import SESSION_STARTS, Previous, SessionStart


@dataclass(frozen=True)
class Recipe:
    """A streaming federated learning algorithm. Any engine can run it on any world.

    A variant is a replacement: ``dataclasses.replace(sfedpo(), weights=Equal())``.
    """

    name: str
    memory: MemoryPolicy = choice(POLICIES)
    forecast: Forecast = choice(FORECASTS, default=Exact())
    sample_weights: SampleWeights | None = choice(SAMPLE_WEIGHTS, default=None)
    """How much each kept sample counts; none: all the same."""
    selection: Selection = choice(RULES, default=Available())
    objective: Objective = choice(OBJECTIVES, default=CrossEntropy())
    local: Sgd | None = field(default=None)
    """How a client trains; none: as the scenario says."""
    weights: Weights = choice(WEIGHTS, default=Equal())
    staleness: Staleness = choice(STALENESS, default=RejectLate())
    """What updates count that come after their round was closed."""
    robust: Robust | None = choice(ROBUST, default=None)
    """What makes hostile updates harmless before the server rule sees them; none: all are believed."""
    server: ServerRule = choice(SERVER_RULES, default=Step())
    bank: Bank = choice(BANKS, default=OneModel())
    """Which models there are, and who trains which."""
    session_start: SessionStart = choice(SESSION_STARTS, default=Previous())
    """With which model a session of other clients begins."""
    geometry: Geometry = choice(GEOMETRIES, default=Euclidean())
    """The geometry of a client's steps."""
    stopping: Stopping | None = choice(STOPPINGS, default=None)
    """When a client has learnt enough for a round; none: at its end."""
    privacy: Privacy | None = choice(PRIVACIES, default=None)
    """What a client does to its update before anybody sees it; none: it is sent as it is."""
    secure_aggregation: Masked | None = choice(SECURE_AGGREGATIONS, default=None)
    """What the server sees of updates; none: every one."""
    alarm: Alarm | None = choice(ALARMS, default=None)
    """Watches every client's error or loss, and what is done when it has changed; none: nobody does."""

    def __post_init__(self) -> None:
        require(
            isinstance(self.bank, OneModel) or isinstance(self.session_start, Previous),
            f"session_start={type(self.session_start).__name__} says with which model a session begins, but the bank "
            f"{type(self.bank).__name__} has several and goes on with those it has; use session_start=previous.",
        )

    @property
    def effect(self) -> Effect:
        """What follows from an alarm; nothing if nobody watches."""
        return Effect() if self.alarm is None else resolve_effect(self.alarm)
