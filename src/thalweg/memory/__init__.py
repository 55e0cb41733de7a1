"""Stage 2: what each client keeps."""

from thalweg.memory.base import Foresees, MemoryPolicy, renew
from thalweg.memory.dds import Dds  # more of the states that matter, guided by a forecast
from thalweg.memory.fifo import Fifo  # only the recent past
from thalweg.memory.replace import Replace  # no past
from thalweg.memory.reservoir import Reservoir  # uniform over all the past
from thalweg.memory.uniform_ratio import UniformRatio  # a fixed share of new samples at every tick

POLICIES = {
    "dds": Dds,
    "fifo": Fifo,
    "replace": Replace,
    "reservoir": Reservoir,
    "uniform-ratio": UniformRatio,
}

__all__ = [
    "POLICIES",
    "Dds",
    "Fifo",
    "Foresees",
    "MemoryPolicy",
    "Replace",
    "Reservoir",
    "UniformRatio",
    "renew",
]
