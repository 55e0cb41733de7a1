"""Local training: objectives, optimizers, early stopping and noise on updates.

To add an objective, write a class with the method of `Objective` and add it to `OBJECTIVES`.
"""

from thalweg.core.decay import (  # learning-rate schedules
    DECAYS,
    CosineDecay,
    LrDecay,
    PolynomialDecay,
    StepwiseDecay,
    Warmup,
)
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
    with_trained_features,
    without_dropout,
)
from thalweg.local.continuous import Continuous  # distil the last session's model
from thalweg.local.contrastive import Moon  # features close to the received model's (MOON)
from thalweg.local.curvature import Curvature  # protect what matters to other clients (FedCurv)
from thalweg.local.elastic import Elastic  # protect what mattered in the last state (EWC)
from thalweg.local.geometry import Euclidean, Geometry, PNorm  # mirror descent
from thalweg.local.not_true import NotTrue  # distil the wrong classes only (FedNTD)
from thalweg.local.optimizers import (
    OPTIMIZERS,
    Adam,
    AdamW,
    Optimizer,
    Sgd,
    StepSettings,
    TorchOptimizer,
)
from thalweg.local.privacy import (
    PRIVACIES,
    Gaussian,  # clip updates, add noise
    HidesNumbers,
    Privacy,
    RoundNumbers,
)
from thalweg.local.proximal import Proximal  # stay near the received model (FedProx)
from thalweg.local.quadratic import Quadratic, QuadraticObjective  # a penalty on the parameters
from thalweg.local.scaffold import Scaffold  # control variates (SCAFFOLD)
from thalweg.local.stopping import GainThreshold, Stopping  # early stopping (Flash)
from thalweg.local.task_loss import TaskLoss  # the loss of the task
from thalweg.local.training import LocalTraining  # how a client trains
from thalweg.local.two_teachers import TwoTeachers  # distil two earlier models (FLwF-2T)

OBJECTIVES: dict[str, type[Objective]] = {
    "continuous": Continuous,
    "curvature": Curvature,
    "elastic": Elastic,
    "loss": TaskLoss,
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
    "OPTIMIZERS",
    "PRIVACIES",
    "STOPPINGS",
    "Adam",
    "AdamW",
    "Batch",
    "Continuous",
    "CosineDecay",
    "Curvature",
    "Elastic",
    "Euclidean",
    "Features",
    "FinishesRound",
    "GainThreshold",
    "Gaussian",
    "Geometry",
    "HidesNumbers",
    "LocalTraining",
    "LrDecay",
    "Memo",
    "Model",
    "Moon",
    "NotTrue",
    "Objective",
    "Optimizer",
    "PNorm",
    "PolynomialDecay",
    "Privacy",
    "Proximal",
    "Quadratic",
    "QuadraticObjective",
    "ResetsPerSession",
    "RoundNumbers",
    "Scaffold",
    "Sgd",
    "StatefulObjective",
    "StepSettings",
    "StepwiseDecay",
    "Stopping",
    "TaskLoss",
    "TorchOptimizer",
    "TrainingSummary",
    "TwoTeachers",
    "UploadsFromObjective",
    "Warmup",
    "with_features",
    "with_trained_features",
    "without_dropout",
]
