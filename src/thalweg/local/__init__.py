"""What a client computes from what it kept: an objective, how it is descended, and for how long."""

from thalweg.local.base import (
    Batch,
    Concludes,
    Memo,
    Model,
    Objective,
    PerSession,
    Remembers,
    SaysFromObjective,
    Work,
    frozen,
)
from thalweg.local.cross_entropy import CrossEntropy
from thalweg.local.curvature import Curvature  # stay where the others' losses are low (FedCurv)
from thalweg.local.elastic import Elastic  # keep what mattered for the last state (EWC)
from thalweg.local.mirror import Euclidean, Mirror, PNorm
from thalweg.local.not_true import NotTrue  # keep what was known of wrong classes (FedNTD)
from thalweg.local.proximal import Proximal  # stay near the start (FedProx)
from thalweg.local.sgd import Sgd
from thalweg.local.stopping import Settles, Stopping  # learn no more once it gains little (Flash)
from thalweg.local.two_teachers import TwoTeachers  # keep what two teachers knew (FLwF-2T)

OBJECTIVES: dict[str, type[Objective]] = {
    "cross_entropy": CrossEntropy,
    "curvature": Curvature,
    "elastic": Elastic,
    "not-true": NotTrue,
    "proximal": Proximal,
    "two-teachers": TwoTeachers,
}
MIRRORS: dict[str, type[Mirror]] = {"euclidean": Euclidean, "p-norm": PNorm}
STOPPINGS: dict[str, type[Stopping]] = {"settles": Settles}

__all__ = [
    "MIRRORS",
    "OBJECTIVES",
    "STOPPINGS",
    "Batch",
    "Concludes",
    "CrossEntropy",
    "Curvature",
    "Elastic",
    "Euclidean",
    "Memo",
    "Mirror",
    "Model",
    "NotTrue",
    "Objective",
    "PNorm",
    "PerSession",
    "Proximal",
    "Remembers",
    "SaysFromObjective",
    "Settles",
    "Sgd",
    "Stopping",
    "TwoTeachers",
    "Work",
    "frozen",
]
