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
from thalweg.streams.base import Setting, StateBook, World, WorldSpec, supplies_of
from thalweg.streams.faults import LOST, Faults, Unreliable  # replies that are lost, or late
from thalweg.streams.inflow import Inflow  # historical clients, and fresh ones who receive samples
from thalweg.streams.latent import LatentStates  # clients that wander among latent states
from thalweg.streams.pachinko import Pachinko
from thalweg.streams.replay import Replay  # a data set in its own order, by its own clients
from thalweg.streams.sessions import Schedule, Timetable
from thalweg.streams.shares import (  # which samples of an `Inflow` are whose
    PARTITIONS,
    Dirichlet,
    Even,
    Groups,
    Partition,
)

WORLDS = {"latent-states": LatentStates, "replay": Replay, "inflow": Inflow}
FAULTS = {"unreliable": Unreliable}

__all__ = [
    "ARRIVALS",
    "FAULTS",
    "LOST",
    "PARTITIONS",
    "WORLDS",
    "ArrivalProcess",
    "AtStart",
    "Bursts",
    "Constant",
    "Dirichlet",
    "Even",
    "Faults",
    "Groups",
    "Inflow",
    "LatentStates",
    "OneShot",
    "Pachinko",
    "Partition",
    "Poisson",
    "Replay",
    "Schedule",
    "Setting",
    "StateBook",
    "Timetable",
    "Unreliable",
    "World",
    "WorldSpec",
    "supplies_of",
]
