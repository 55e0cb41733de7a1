"""A scenario: the problem on which recipes are compared."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from thalweg.core.config import check_ranges, choice, convert_parts
from thalweg.core.errors import UnknownName, require
from thalweg.core.metrics import HEADLINES, METRICS, Metric
from thalweg.core.registry import (
    NAME_METADATA,
    check_name,
    local_object,
    local_path,
    registered_name,
)
from thalweg.data import AUGMENTATIONS, SOURCES, Augmentation, DataSource
from thalweg.evaluation.named import NAMED_METRICS, get_metric_declaration, name_metrics
from thalweg.local import LocalTraining
from thalweg.losses import LOSSES, Loss, wrap_function
from thalweg.nets import NETS, NetSpec
from thalweg.streams import (
    DRIFTS,
    FAULTS,
    SCHEDULES,
    WORLDS,
    Drift,
    Faults,
    LatentStates,
    Replay,
    Schedule,
    WorldSpec,
)

ENDLESS_ROUNDS = 100  # of a world in which rows do not run out


@dataclass(frozen=True)
class Scenario:
    """A data set, a world in which the data arrive, a memory size, and a net to train."""

    name: str = field(metadata=NAME_METADATA)
    local: LocalTraining
    """Local training, unless the recipe sets its own."""
    data: DataSource = choice(SOURCES)
    net: NetSpec = choice(NETS)
    world: WorldSpec = choice(WORLDS)
    rounds: int = 100
    """Number of rounds; 0: until all rows of the data have arrived once (100 in worlds without an
    end)."""
    ticks: int = 5
    """Times per round at which data arrive; the client trains after each tick."""
    capacity: int = 500
    """Number of samples that a client can store."""
    evaluate_every: int = 5
    """Rounds between two evaluations on the test set; the last round is always evaluated."""
    evaluate_first: int = 0
    """The first `evaluate_first` rounds of every session are evaluated as well."""
    validation: float = 0.0
    """Share of the test samples that is reserved for choosing among runs."""
    tasks: bool = False
    """Measure the accuracy on earlier views of the data as well: before each drift and at the end.

    Has no effect in worlds without views.
    """
    prequential: int = 32
    """Arriving samples per tick that are predicted before they are used for training; 0: none."""
    loss: Loss | None = choice(LOSSES, expand=wrap_function, default=None)
    """The loss of a sample, as a name, an instance or any function of outputs and targets.

    None: cross_entropy for classes, mse for numbers.
    """
    metrics: tuple[str, ...] = local_object(
        default=(), is_lazy=True, metadata={"expand": name_metrics}
    )
    """Further metrics on the test set: accuracy, balanced_accuracy, f1, auroc, log_loss, mae, rmse,
    r2, or functions of targets and predictions (file.py:function, followed by :higher or :lower,
    the better direction).
    """
    headline: str | None = registered_name(lambda: NAMED_METRICS, default=None)
    """The metric by which runs are compared.

    None: on data that arrive in the order of their times, or without a test set,
    prequential_accuracy or prequential_mae; otherwise accuracy or mae.
    """
    augment: Augmentation | None = choice(AUGMENTATIONS, default=None)
    """Augmentation of training images; None: none."""
    start_from: str | None = local_path(default=None)
    """A file of initial parameters as written by a run (model.safetensors).

    None: random initialisation.
    """
    sessions: Schedule | None = choice(SCHEDULES, default=None)
    """Session membership over time; None: all clients, always."""
    faults: Faults | None = choice(FAULTS, default=None)
    """Lost and late responses of clients; None: no faults."""
    drift: Drift | None = choice(DRIFTS, default=None)
    """Drift of the data over time; None: as the world defines it."""

    def __post_init__(self) -> None:
        check_name(self.name)
        convert_parts(self)
        object.__setattr__(self, "metrics", name_metrics(self.metrics))
        if self.headline is not None:
            self._add_headline(self.headline)
        check_ranges(
            self,
            rounds="[0, inf)",
            ticks="[1, TICKS]",
            capacity="[1, inf)",
            evaluate_every="[1, inf)",
            evaluate_first="[0, inf)",
            validation="[0, 1)",
            prequential="[0, inf)",
        )

    @property
    def repeats_rows(self) -> bool:
        """Whether a sample can arrive more than once: drawn again, or replayed from the start."""
        is_drawn = isinstance(self.world, LatentStates)
        return is_drawn or getattr(self.world, "at_end", "stop") == "restart"

    @property
    def own_metrics(self) -> dict[str, Metric]:
        """The declarations of the metrics that the user defined, by name."""
        found = [get_metric_declaration(text) for text in self.metrics]
        return {metric.name: metric for metric in found if metric.name not in METRICS}

    def _add_headline(self, name: str) -> None:
        """Request the headline if it is a metric that is computed on request only."""
        if name in NAMED_METRICS and name not in self.metrics:
            object.__setattr__(self, "metrics", (*self.metrics, name))
        known = {
            **{name: METRICS[name] for name in (*NAMED_METRICS, *HEADLINES)},
            **self.own_metrics,
        }
        if name not in known:
            raise UnknownName("headline", name, known)
        require(
            known[name].better != "",
            f"headline={name}: expected a metric with a direction, but it is not known whether "
            f"higher or lower is better. Use thalweg.NamedMetric({name!r}, FUNCTION, "
            "higher_is_better=True), or FILE.py:FUNCTION:higher on the command line.",
        )


def resolve_sizes(scenario: Scenario, data_dir: Path | None, seed: int) -> Scenario:
    """Return the scenario with the numbers of rounds and arrivals, which may follow from the data.

    The data are loaded only if they are needed.
    """
    world = scenario.world
    if not isinstance(world, Replay):
        return replace(scenario, rounds=scenario.rounds or ENDLESS_ROUNDS)
    if scenario.rounds > 0 and world.arrivals > 0:
        return scenario
    data = scenario.data.load(data_dir, seed)
    world = world.choose_arrivals(len(data.y), data.client, scenario.ticks)
    needed = world.count_rounds(len(data.y), data.client, data.time, scenario.ticks)
    return replace(scenario, world=world, rounds=scenario.rounds or needed)
