"""Memory policies: which samples each client keeps.

A client has a memory of bounded size. When samples arrive, its policy decides which of the held
and the new samples stay. To add a policy, write a class with the methods of `MemoryPolicy` and add
it to `POLICIES`.
"""

from thalweg.memory.balanced import Balanced  # the same number of samples of each class
from thalweg.memory.base import (
    MemoryPolicy,
    NeedsLastLayer,
    PredictsRenewal,
    UploadsFromMemory,
    make_context,
    renew,
)
from thalweg.memory.dds import Dds  # renew more in important, balanced or rare states (SFedPO)
from thalweg.memory.dds_stationary import DdsStationary  # DDS without tunables
from thalweg.memory.drsr import Drsr  # follow the long-run distribution of the stream
from thalweg.memory.fifo import Fifo  # the most recent samples
from thalweg.memory.importance import Importance  # samples with the largest gradients
from thalweg.memory.never import Never  # the first samples, never replaced
from thalweg.memory.ode import Ode  # samples aligned with the global gradient
from thalweg.memory.replace import Replace  # only the samples that have just arrived
from thalweg.memory.reservoir import Reservoir  # a uniform sample of the whole past
from thalweg.memory.uniform_ratio import UniformRatio  # renew a fixed share per tick

POLICIES = {
    "balanced": Balanced,
    "dds": Dds,
    "dds-stationary": DdsStationary,
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
    "Balanced",
    "Dds",
    "DdsStationary",
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
    "make_context",
    "renew",
]
