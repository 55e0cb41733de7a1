"""Stage 1: what arrives, at which client, and when."""

from thalweg.streams.arrivals import (  # how many samples of an `Inflow` come when
    ARRIVALS,
    ArrivalProcess,
    AtStart,
    Bursts,
    ConstantRate,
    OneShot,
    Poisson,
)
from thalweg.streams.base import (
    DriftEvent,
    HasViews,
    Setting,
    StateTable,
    Stream,
    World,
    WorldSpec,
    collect_supplies,
)
from thalweg.streams.drift_schedules import (  # whose samples are seen in another way, and when
    DRIFTS,
    Gradual,
    Incremental,
    RecurringDrift,
    Staggered,
    Sudden,
)
from thalweg.streams.drift_table import DriftTable  # the same from a file
from thalweg.streams.drifting_world import Drift, DriftingWorld, add_drift
from thalweg.streams.faults import LOST, Faults, TampersUpdates, Unreliable  # replies lost, or late
from thalweg.streams.hostile import Hostile  # clients that send what they have not learnt
from thalweg.streams.inflow import Inflow  # historical clients, and fresh ones who receive samples
from thalweg.streams.label_partitions import (  # partitions for groups that take turns
    Distinct,
    Half,
    PartialOverlap,
    TwoShard,
)
from thalweg.streams.latent import LatentStates  # clients that wander among latent states
from thalweg.streams.live import Live, LiveWorld  # clients bring their own data
from thalweg.streams.overlap import Overlap  # the same, with labels in common
from thalweg.streams.pachinko import Pachinko
from thalweg.streams.partitions import (  # which samples of an `Inflow` are whose
    PARTITIONS,
    Dirichlet,
    Even,
    Groups,
    Partition,
)
from thalweg.streams.replay import Replay  # a data set in its own order, by its own clients
from thalweg.streams.schedules import (  # who is a member when
    SCHEDULES,
    Alternating,
    RandomChurn,
    Recurring,
)
from thalweg.streams.sessions import Schedule, Timetable, scale_supplies
from thalweg.streams.steps import Steps  # concepts and angles that change every few rounds
from thalweg.streams.timeline import Timeline, ViewChange, build_timeline
from thalweg.streams.trace import Trace  # who is a member when, from a file

WORLDS = {
    "latent-states": LatentStates,
    "replay": Replay,
    "inflow": Inflow,
    "steps": Steps,
    "live": Live,
}
FAULTS = {"unreliable": Unreliable, "hostile": Hostile}

__all__ = [
    "ARRIVALS",
    "DRIFTS",
    "FAULTS",
    "LOST",
    "PARTITIONS",
    "SCHEDULES",
    "WORLDS",
    "Alternating",
    "ArrivalProcess",
    "AtStart",
    "Bursts",
    "ConstantRate",
    "Dirichlet",
    "Distinct",
    "Drift",
    "DriftEvent",
    "DriftTable",
    "DriftingWorld",
    "Even",
    "Faults",
    "Gradual",
    "Groups",
    "Half",
    "HasViews",
    "Hostile",
    "Incremental",
    "Inflow",
    "LatentStates",
    "Live",
    "LiveWorld",
    "OneShot",
    "Overlap",
    "Pachinko",
    "PartialOverlap",
    "Partition",
    "Poisson",
    "RandomChurn",
    "Recurring",
    "RecurringDrift",
    "Replay",
    "Schedule",
    "Setting",
    "Staggered",
    "StateTable",
    "Steps",
    "Stream",
    "Sudden",
    "TampersUpdates",
    "Timeline",
    "Timetable",
    "Trace",
    "TwoShard",
    "Unreliable",
    "ViewChange",
    "World",
    "WorldSpec",
    "add_drift",
    "build_timeline",
    "collect_supplies",
    "scale_supplies",
]
