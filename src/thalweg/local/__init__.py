"""What a client computes from what it kept: an objective, how it is descended, and for how long."""

from thalweg.local.base import (
    Batch,
    Features,
    FinishesRound,
    Memo,
    Model,
    Objective,
    ResetsPerSession,
    StatefulObjective,
    TrainingSummary,
    UploadsFromObjective,
    with_features,
    without_dropout,
)
from thalweg.local.continuous import Continuous  # learn from the last session's model
from thalweg.local.contrastive import Moon  # features like the received model's (MOON)
from thalweg.local.cross_entropy import CrossEntropy
from thalweg.local.curvature import Curvature  # stay where the others' losses are low (FedCurv)
from thalweg.local.decay import DECAYS, LrDecay, PolynomialDecay
from thalweg.local.elastic import Elastic  # keep what mattered for the last state (EWC)
from thalweg.local.geometry import Euclidean, Geometry, PNorm
from thalweg.local.not_true import NotTrue  # keep what was known of wrong classes (FedNTD)
from thalweg.local.privacy import PRIVACIES, Gaussian, Privacy  # hide updates in noise
from thalweg.local.proximal import Proximal  # stay near the start (FedProx)
from thalweg.local.scaffold import Scaffold  # correct every step by the others' (SCAFFOLD)
from thalweg.local.sgd import Sgd
from thalweg.local.stopping import (  # learn no more once it gains little (Flash)
    GainThreshold,
    Stopping,
)
from thalweg.local.two_teachers import TwoTeachers  # keep what two teachers knew (FLwF-2T)

OBJECTIVES: dict[str, type[Objective]] = {
    "continuous": Continuous,
    "cross_entropy": CrossEntropy,
    "curvature": Curvature,
    "elastic": Elastic,
    "moon": Moon,
    "not-true": NotTrue,
    "proximal": Proximal,
    "scaffold": Scaffold,
    "two-teachers": TwoTeachers,
}
GEOMETRIES: dict[str, type[Geometry]] = {"euclidean": Euclidean, "p-norm": PNorm}
STOPPINGS: dict[str, type[Stopping]] = {"gain-threshold": GainThreshold}

__all__ = [
    "DECAYS",
    "GEOMETRIES",
    "OBJECTIVES",
    "PRIVACIES",
    "STOPPINGS",
    "Batch",
    "Continuous",
    "CrossEntropy",
    "Curvature",
    "Elastic",
    "Euclidean",
    "Features",
    "FinishesRound",
    "GainThreshold",
    "Gaussian",
    "Geometry",
    "LrDecay",
    "Memo",
    "Model",
    "Moon",
    "NotTrue",
    "Objective",
    "PNorm",
    "PolynomialDecay",
    "Privacy",
    "Proximal",
    "ResetsPerSession",
    "Scaffold",
    "Sgd",
    "StatefulObjective",
    "Stopping",
    "TrainingSummary",
    "TwoTeachers",
    "UploadsFromObjective",
    "with_features",
    "without_dropout",
]
