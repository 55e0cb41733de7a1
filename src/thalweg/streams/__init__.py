"""The data that arrive at each client, and when clients are available."""

from thalweg.streams.arrivals import (  # number of samples that arrive per round (`Inflow`)
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
    has_arrivals,
)
from thalweg.streams.drift_schedules import (  # drift: clients whose data change, and when
    DRIFTS,
    Gradual,
    Incremental,
    RecurringDrift,
    Staggered,
    Sudden,
)
from thalweg.streams.drift_table import DriftTable  # drift from a CSV file
from thalweg.streams.drifting_world import Drift, DriftingWorld, add_drift
from thalweg.streams.faults import (  # lost and late responses
    LOST,
    Faults,
    TampersUpdates,
    Unreliable,
)
from thalweg.streams.hostile import Hostile  # adversarial clients
from thalweg.streams.inflow import (
    Inflow,  # clients with stored data and clients with streaming data
)
from thalweg.streams.label_partitions import (  # partitions for groups of clients that alternate
    Distinct,
    Half,
    PartialOverlap,
    TwoShard,
)
from thalweg.streams.latent import LatentStates  # clients that switch between latent states
from thalweg.streams.live import Live, LiveWorld  # clients with their own live data
from thalweg.streams.merged import MergedState, MergedWorld  # all clients as one learner
from thalweg.streams.overlap import Overlap  # two groups of clients that share labels
from thalweg.streams.pachinko import Pachinko
from thalweg.streams.partitions import (  # assignment of samples to clients (`Inflow`)
    PARTITIONS,
    Dirichlet,
    Even,
    Groups,
    Partition,
)
from thalweg.streams.replay import Replay  # a data set replayed in time order
from thalweg.streams.schedules import (  # session membership over time
    SCHEDULES,
    Alternating,
    RandomChurn,
    Recurring,
)
from thalweg.streams.sessions import Schedule, Timetable, scale_supplies
from thalweg.streams.state_dynamics import (  # how the state probabilities of clients change
    DYNAMICS,
    PeriodicStates,
    StateDynamics,
    SwitchingRegimes,
)
from thalweg.streams.steps import Steps  # concepts and rotations that change in steps
from thalweg.streams.timeline import Timeline, ViewChange, build_timeline
from thalweg.streams.trace import Trace  # session membership from a CSV file

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
    "DYNAMICS",
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
    "MergedState",
    "MergedWorld",
    "OneShot",
    "Overlap",
    "Pachinko",
    "PartialOverlap",
    "Partition",
    "PeriodicStates",
    "Poisson",
    "RandomChurn",
    "Recurring",
    "RecurringDrift",
    "Replay",
    "Schedule",
    "Setting",
    "Staggered",
    "StateDynamics",
    "StateTable",
    "Steps",
    "Stream",
    "Sudden",
    "SwitchingRegimes",
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
    "has_arrivals",
    "scale_supplies",
]
