"""Stage 2: what each client keeps."""

from thalweg.memory.base import (
    MemoryPolicy,
    NeedsLastLayer,
    PredictsRenewal,
    UploadsFromMemory,
    renew,
)
from thalweg.memory.dds import Dds  # more of the states that matter, guided by a forecast
from thalweg.memory.drsr import Drsr  # the long run of the stream
from thalweg.memory.fifo import Fifo  # only the recent past
from thalweg.memory.importance import Importance  # samples with large gradients
from thalweg.memory.never import Never  # what came first
from thalweg.memory.ode import Ode  # samples whose gradient agrees with everybody's
from thalweg.memory.replace import Replace  # no past
from thalweg.memory.reservoir import Reservoir  # uniform over all the past
from thalweg.memory.uniform_ratio import UniformRatio  # a fixed share of new samples at every tick

POLICIES = {
    "dds": Dds,
    "drsr": Drsr,
    "fifo": Fifo,
    "importance": Importance,
    "never": Never,
    "ode": Ode,
    "replace": Replace,
    "reservoir": Reservoir,
    "uniform-ratio": UniformRatio,
}

__all__ = [
    "POLICIES",
    "Dds",
    "Drsr",
    "Fifo",
    "Importance",
    "MemoryPolicy",
    "NeedsLastLayer",
    "Never",
    "Ode",
    "PredictsRenewal",
    "Replace",
    "Reservoir",
    "UniformRatio",
    "UploadsFromMemory",
    "renew",
]
