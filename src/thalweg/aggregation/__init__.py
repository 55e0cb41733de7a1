"""Aggregation at the server: from the updates of a round to the next model.

Five kinds of policies, applied in this order:

1. `SECURE_AGGREGATIONS`: optionally hide single updates from the server.
2. `WEIGHTS`: the weight of each update in the mean.
3. `STALENESS`: discounts for late updates.
4. `ROBUST`: optionally limit the influence of hostile updates.
5. `SERVER_RULES`: the step from the current model to the next one.
"""

from thalweg.aggregation.adaptive import Adaptive  # adapts the clients' learning rate
from thalweg.aggregation.averaged import AVERAGED_RULES, Averaged  # evaluates an average
from thalweg.aggregation.base import (
    HasEvalModel,
    MemorySummary,
    Reports,
    RestartsOnAlarms,
    ScalesLr,
    ServerRule,
    WeighsRounds,
    Weights,
    has_eval_model,
)
from thalweg.aggregation.buffered import Buffered  # steps when enough updates have arrived
from thalweg.aggregation.by_arrivals import ByArrivals
from thalweg.aggregation.fedacg import FedAcg  # server momentum with look-ahead models
from thalweg.aggregation.fedavgm import FedAvgM  # server momentum
from thalweg.aggregation.fedexp import FedExp  # longer steps if the updates disagree
from thalweg.aggregation.fedopt import FedAdagrad, FedAdam, FedYogi  # adaptive optimizers
from thalweg.aggregation.flash import Flash  # adaptive optimizer that reacts to drift
from thalweg.aggregation.krum import Krum, MultiKrum  # select updates by their distances
from thalweg.aggregation.label_balanced import LabelBalanced  # a balanced mix of labels
from thalweg.aggregation.robust import CombinedUpdates, Median, NormClip, Robust, TrimmedMean
from thalweg.aggregation.secure_aggregation import (  # reveals the sum of the updates only
    SECURE_AGGREGATIONS,
    Masked,
)
from thalweg.aggregation.shift_aware import ShiftAware  # less weight for misleading memories
from thalweg.aggregation.staleness import (  # discounts for late updates
    ConstantDiscount,
    HingeDiscount,
    PolynomialDiscount,
    RejectLate,
    Staleness,
)
from thalweg.aggregation.step import Step  # the weighted mean, as in FedAvg
from thalweg.aggregation.weights import BySamples, ByWeight, Equal

WEIGHTS = {
    "equal": Equal,
    "by-samples": BySamples,
    "by-weight": ByWeight,
    "by-arrivals": ByArrivals,
    "shift-aware": ShiftAware,
    "label-balanced": LabelBalanced,
}
SERVER_RULES = {**AVERAGED_RULES, "averaged": Averaged}
ROBUST = {
    "median": Median,
    "trimmed-mean": TrimmedMean,
    "norm-clip": NormClip,
    "krum": Krum,
    "multi-krum": MultiKrum,
}
STALENESS = {
    "reject": RejectLate,
    "polynomial": PolynomialDiscount,
    "hinge": HingeDiscount,
    "constant": ConstantDiscount,
}

__all__ = [
    "ROBUST",
    "SECURE_AGGREGATIONS",
    "SERVER_RULES",
    "STALENESS",
    "WEIGHTS",
    "Adaptive",
    "Averaged",
    "Buffered",
    "ByArrivals",
    "BySamples",
    "ByWeight",
    "CombinedUpdates",
    "ConstantDiscount",
    "Equal",
    "FedAcg",
    "FedAdagrad",
    "FedAdam",
    "FedAvgM",
    "FedExp",
    "FedYogi",
    "Flash",
    "HasEvalModel",
    "HingeDiscount",
    "Krum",
    "LabelBalanced",
    "Masked",
    "Median",
    "MemorySummary",
    "MultiKrum",
    "NormClip",
    "PolynomialDiscount",
    "RejectLate",
    "Reports",
    "RestartsOnAlarms",
    "Robust",
    "ScalesLr",
    "ServerRule",
    "ShiftAware",
    "Staleness",
    "Step",
    "TrimmedMean",
    "WeighsRounds",
    "Weights",
    "has_eval_model",
]
