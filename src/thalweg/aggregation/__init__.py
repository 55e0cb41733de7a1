"""Stage 5: weights of updates, staleness, robust aggregation and server rules."""

from thalweg.aggregation.adaptive import Adaptive  # and the clients' pace follows its variance
from thalweg.aggregation.base import (
    HasEvalModel,
    MemorySummary,
    Reports,
    ScalesLr,
    ServerRule,
    Weights,
)
from thalweg.aggregation.by_samples import BySamples  # in proportion to samples held
from thalweg.aggregation.by_weight import ByWeight  # of the samples held, as the emphasis says
from thalweg.aggregation.equal import Equal  # all the same
from thalweg.aggregation.fedacg import FedAcg  # with momentum, and clients look ahead
from thalweg.aggregation.fedexp import FedExp  # farther, the more the clients disagree
from thalweg.aggregation.flash import Flash  # adaptive, faster after a drift
from thalweg.aggregation.krum import Krum, MultiKrum  # the updates in the midst of the others
from thalweg.aggregation.median import Median  # number by number
from thalweg.aggregation.norm_clip import NormClip  # none longer than a bound
from thalweg.aggregation.robust import CombinedUpdates, Robust
from thalweg.aggregation.secure_aggregation import (  # the sum is seen, no single update
    SECURE_AGGREGATIONS,
    Masked,
)
from thalweg.aggregation.shift_aware import ShiftAware  # less for clients whose data mislead
from thalweg.aggregation.staleness import (  # what updates count that come late
    ConstantDiscount,
    HingeDiscount,
    PolynomialDiscount,
    RejectLate,
    Staleness,
)
from thalweg.aggregation.step import Step  # the weighted mean
from thalweg.aggregation.trimmed_mean import TrimmedMean  # without the largest and the smallest

WEIGHTS = {
    "equal": Equal,
    "by-samples": BySamples,
    "by-weight": ByWeight,
    "shift-aware": ShiftAware,
}
SERVER_RULES = {
    "step": Step,
    "adaptive": Adaptive,
    "fedacg": FedAcg,
    "fedexp": FedExp,
    "flash": Flash,
}
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
    "BySamples",
    "ByWeight",
    "CombinedUpdates",
    "ConstantDiscount",
    "Equal",
    "FedAcg",
    "FedExp",
    "Flash",
    "HasEvalModel",
    "HingeDiscount",
    "Krum",
    "Masked",
    "Median",
    "MemorySummary",
    "MultiKrum",
    "NormClip",
    "PolynomialDiscount",
    "RejectLate",
    "Reports",
    "Robust",
    "ScalesLr",
    "ServerRule",
    "ShiftAware",
    "Staleness",
    "Step",
    "TrimmedMean",
    "Weights",
]
