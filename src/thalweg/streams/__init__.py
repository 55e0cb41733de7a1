"""Stage 1: what arrives, at which client, and when."""

from thalweg.streams.arrivals import (  # how many samples of an `Inflow` come when
    ARRIVALS,
    ArrivalProcess,
    AtStart,
    Bursts,
    Constant,
    OneShot,
    Poisson,
)
from thalweg.streams.base import (
    DriftEvent,
    HasViews,
    Setting,
    StateBook,
    Stream,
    World,
    WorldSpec,
    supplies_of,
)
from thalweg.streams.drift_table import DriftTable  # the same from a file
from thalweg.streams.drifting import Drift, DriftingWorld, drifting
from thalweg.streams.drifts import (  # whose samples are seen in another way, and when
    DRIFTS,
    Gradual,
    Incremental,
    Returning,
    Staggered,
    Sudden,
)
from thalweg.streams.faults import LOST, Faults, Tampers, Unreliable  # replies lost, or late
from thalweg.streams.hostile import Hostile  # clients that send what they have not learnt
from thalweg.streams.inflow import Inflow  # historical clients, and fresh ones who receive samples
from thalweg.streams.latent import LatentStates  # clients that wander among latent states
from thalweg.streams.layouts import (  # partitions for groups that take turns
    Distinct,
    Half,
    PartialOverlap,
    TwoShard,
)
from thalweg.streams.live import Live, LiveWorld  # clients bring their own data
from thalweg.streams.overlap import Overlap  # the same, with labels in common
from thalweg.streams.pachinko import Pachinko
from thalweg.streams.replay import Replay  # a data set in its own order, by its own clients
from thalweg.streams.schedules import (  # who is a member when
    SCHEDULES,
    Alternating,
    RandomChurn,
    Recurring,
)
from thalweg.streams.sessions import Schedule, Timetable, attended
from thalweg.streams.shares import (  # which samples of an `Inflow` are whose
    PARTITIONS,
    Dirichlet,
    Even,
    Groups,
    Partition,
)
from thalweg.streams.steps import Steps  # concepts and angles that change every few rounds
from thalweg.streams.timeline import Timeline, Turn, timeline_of
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
    "Constant",
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
    "Replay",
    "Returning",
    "Schedule",
    "Setting",
    "Staggered",
    "StateBook",
    "Steps",
    "Stream",
    "Sudden",
    "Tampers",
    "Timeline",
    "Timetable",
    "Trace",
    "Turn",
    "TwoShard",
    "Unreliable",
    "World",
    "WorldSpec",
    "attended",
    "drifting",
    "supplies_of",
    "timeline_of",
]
