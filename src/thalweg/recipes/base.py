"""The recipe: one component for each stage of a streaming federated learning algorithm."""

from __future__ import annotations

from dataclasses import dataclass

from thalweg.aggregation import (
    ROBUST,
    SECURE_AGGREGATIONS,
    SERVER_RULES,
    STALENESS,
    WEIGHTS,
    Equal,
    HasEvalModel,
    Masked,
    RejectLate,
    Reports,
    RestartsOnAlarms,
    Robust,
    ScalesLr,
    ServerRule,
    Staleness,
    Step,
    WeighsRounds,
    Weights,
    has_eval_model,
)
from thalweg.bank import BANKS, Bank, ExtraBankMetrics, MixesModels, OneModel, SplitsSamples
from thalweg.core.capabilities import (
    CountsLabels,
    ExtraMetrics,
    RecordsChoices,
    ServerPart,
    Surveys,
    TracksSessions,
)
from thalweg.core.config import UPPER_BOUNDS, choice, convert_parts
from thalweg.core.errors import require
from thalweg.core.registry import NAME, check_name, plain_text
from thalweg.drift import ALARMS, Alarm, Effect, resolve_effect
from thalweg.forecast import FORECASTS, Auto, Forecast, OpensStates, RecognisesStates
from thalweg.local import (
    GEOMETRIES,
    OBJECTIVES,
    PRIVACIES,
    STOPPINGS,
    Euclidean,
    FinishesRound,
    Geometry,
    LocalTraining,
    Objective,
    Privacy,
    ResetsPerSession,
    StatefulObjective,
    Stopping,
    TaskLoss,
    UploadsFromObjective,
)
from thalweg.memory import (
    POLICIES,
    MemoryPolicy,
    NeedsLastLayer,
    PredictsRenewal,
    UploadsFromMemory,
)
from thalweg.sample_weights import SAMPLE_WEIGHTS, AssignsWeights, SampleWeights
from thalweg.selection import RULES, Available, Selection
from thalweg.serving import ADJUSTED, AVERAGED, LAST_LABEL, LATEST, SERVINGS, TRAINED, Serving
from thalweg.sessions import (
    SESSION_STARTS,
    SESSION_TRIGGERS,
    ExtraStartMetrics,
    JudgesModels,
    Previous,
    SessionStart,
    SessionTrigger,
)

# Optional protocols by stage, each with the protocols that it requires.
CAPABILITIES: dict[str, dict[type, tuple[type, ...]]] = {
    "memory": {
        PredictsRenewal: (),
        NeedsLastLayer: (),
        ServerPart: (),
        TracksSessions: (ServerPart,),
        UploadsFromMemory: (ServerPart,),
    },
    "forecast": {RecognisesStates: (), OpensStates: (RecognisesStates,)},
    "sample_weights": {AssignsWeights: (), Surveys: (), ExtraMetrics: ()},
    "selection": {Surveys: (), CountsLabels: (), ExtraMetrics: (), RecordsChoices: ()},
    "objective": {
        StatefulObjective: (),
        FinishesRound: (StatefulObjective,),
        ResetsPerSession: (StatefulObjective,),
        ServerPart: (),
        TracksSessions: (ServerPart,),
        UploadsFromObjective: (ServerPart,),
    },
    "weights": {Reports: ()},
    "server": {ScalesLr: (), WeighsRounds: (), HasEvalModel: (), RestartsOnAlarms: ()},
    "bank": {Surveys: (), SplitsSamples: (), MixesModels: (), ExtraBankMetrics: ()},
    "session_start": {ExtraStartMetrics: (), Surveys: (), JudgesModels: (Surveys,)},
}


@dataclass(frozen=True)
class Recipe:
    """A streaming federated learning algorithm, which any engine can run on any scenario.

    Create a variant with ``dataclasses.replace(sfedpo(), weights=Equal())``. A component may also
    be given as a class (``memory=Reservoir``) or by its name (``memory="reservoir"``).

    >>> from thalweg.memory import Reservoir
    >>> Recipe("mine", memory="reservoir").memory == Reservoir()
    True
    """

    name: str = plain_text(NAME)
    memory: MemoryPolicy = choice(POLICIES, capabilities=CAPABILITIES["memory"])
    """Which samples a client keeps."""
    forecast: Forecast | Auto = choice(
        FORECASTS, capabilities=CAPABILITIES["forecast"], default=Auto()
    )
    """Predicts the latent states of a client's data; read by memories and weights."""
    sample_weights: SampleWeights | None = choice(
        SAMPLE_WEIGHTS, capabilities=CAPABILITIES["sample_weights"], default=None
    )
    """Sample weights in the local loss; none: all samples have the same weight."""
    selection: Selection = choice(
        RULES, capabilities=CAPABILITIES["selection"], default=Available()
    )
    """Chooses the cohort of a round."""
    objective: Objective = choice(
        OBJECTIVES, capabilities=CAPABILITIES["objective"], default=TaskLoss()
    )
    """The loss that a client minimises."""
    local: LocalTraining | None = None
    """How a client trains; none: as the scenario defines."""
    weights: Weights = choice(WEIGHTS, capabilities=CAPABILITIES["weights"], default=Equal())
    """Weights of the updates in their average."""
    staleness: Staleness = choice(STALENESS, default=RejectLate())
    """Weights of updates that arrive after their round was closed."""
    robust: Robust | None = choice(ROBUST, default=None)
    """Robust aggregation, applied before the server rule; none: all updates are trusted."""
    server: ServerRule = choice(SERVER_RULES, capabilities=CAPABILITIES["server"], default=Step())
    """Computes the next model from the weighted updates."""
    bank: Bank = choice(BANKS, capabilities=CAPABILITIES["bank"], default=OneModel())
    """Which models exist, and which clients train which."""
    session_start: SessionStart = choice(
        SESSION_STARTS, capabilities=CAPABILITIES["session_start"], default=Previous()
    )
    """The model with which a session of other clients starts."""
    session_trigger: SessionTrigger | None = choice(SESSION_TRIGGERS, default=None)
    """Opens sessions at run time; none: the schedule of the scenario, if it has one."""
    geometry: Geometry = choice(GEOMETRIES, default=Euclidean())
    """The geometry of a client's gradient steps."""
    stopping: Stopping | None = choice(STOPPINGS, default=None)
    """Stops local training early; none: clients train until the end of the round."""
    privacy: Privacy | None = choice(PRIVACIES, default=None)
    """Noise that a client adds to its update; none: updates are sent unchanged."""
    secure_aggregation: Masked | None = choice(SECURE_AGGREGATIONS, default=None)
    """Hides single updates from the server; none: the server sees each update."""
    alarm: Alarm | None = choice(ALARMS, default=None)
    """Detects drift in each client's error or loss, and reacts to it; none: no detection."""
    serving: Serving | None = choice(SERVINGS, default=None)
    """How a client chooses among its predictors; none: it uses the model of the bank."""

    def __post_init__(self) -> None:
        check_name(self.name)
        convert_parts(self)
        require(
            not needs_single_model(self, "session_start") or has_single_model(self),
            f"session_start={type(self.session_start).__name__} is incompatible with "
            f"bank={type(self.bank).__name__}: it needs a single model. Use session_start=previous "
            "or bank=one-model.",
        )

    @property
    def uses_forecast(self) -> bool:
        """Whether the memory, the weights or an alarm action uses the forecast.

        >>> from thalweg.recipes import fedavg, sfedpo
        >>> sfedpo().uses_forecast, fedavg().uses_forecast
        (True, False)
        """
        readers = (self.memory, self.weights)
        declared = any(getattr(policy, "uses_forecast", False) for policy in readers)
        return declared or self.effect.opens_state

    @property
    def effect(self) -> Effect:
        """The reaction to an alarm; without effect if the recipe has no alarm."""
        return Effect() if self.alarm is None else resolve_effect(self.alarm)

    @property
    def ground_truth(self) -> tuple[str, ...]:
        """The ground truth that the recipe uses; empty if it could run on real data streams.

        >>> from thalweg.recipes import fedavg, sfedpo
        >>> fedavg().ground_truth
        ()
        >>> sfedpo().ground_truth
        ('forecast: true states',)
        """
        uses = [
            f"{stage}: true concepts"
            for stage in ("selection", "weights", "sample_weights", "bank")
            if getattr(getattr(self, stage), "is_oracle", False)
        ]
        if self.uses_forecast and getattr(self.forecast, "uses_true_states", False):
            uses.append("forecast: true states")
        # A forecast that recognises states replaces the world's states by its own.
        if getattr(self.objective, "uses_true_states", False) and not isinstance(
            self.forecast, RecognisesStates
        ):
            uses.append("objective: true state changes")
        return tuple(uses)


def needs_sessions(recipe: Recipe) -> bool:
    """Return whether the session start has no effect without sessions."""
    return bool(getattr(recipe.session_start, "needs_sessions", True))


def find_max_probe_rounds(recipe: Recipe) -> int:
    """Return the largest number of probe rounds that the session start runs for one session.

    >>> from thalweg.recipes import fedavg, warmstart
    >>> find_max_probe_rounds(fedavg()), find_max_probe_rounds(warmstart())
    (0, 1)
    """
    return int(getattr(recipe.session_start, "max_probe_rounds", UPPER_BOUNDS["MODELS"]))


def list_predictors(recipe: Recipe) -> tuple[str, ...]:
    """Return the predictors among which a client chooses, besides numbered models of a bank.

    Empty without a serving policy.

    >>> from thalweg.serving import BestRecent
    >>> list_predictors(Recipe("mine", memory="fifo", serving=BestRecent(last_label=False)))
    ('latest', 'trained', 'adjusted')
    """
    if recipe.serving is None:
        return ()
    used = set(recipe.serving.predictors)
    if not has_eval_model(recipe.server):
        used.discard(AVERAGED)
    return (LATEST, *(name for name in (AVERAGED, TRAINED, LAST_LABEL, ADJUSTED) if name in used))


def has_single_model(recipe: Recipe) -> bool:
    """Return whether the bank always has one model; banks that do not declare it have several."""
    return bool(getattr(recipe.bank, "is_single_model", False))


def needs_single_model(recipe: Recipe, stage: str) -> bool:
    """Return whether the policy of a stage works with one model only.

    A policy declares this with the class attribute ``needs_single_model``. If it does not, session
    starts and policies with a part at the server are assumed to need a single model.
    """
    part = getattr(recipe, stage)
    default = stage == "session_start" or isinstance(part, ServerPart)
    return bool(getattr(part, "needs_single_model", default))
