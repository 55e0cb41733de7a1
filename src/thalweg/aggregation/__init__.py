"""Stage 5: how much each update counts, and how updates become the model."""

from thalweg.aggregation.adaptive import Adaptive  # and the clients' pace follows its variance
from thalweg.aggregation.anew import Anew  # sessions begin with the model as it was drawn
from thalweg.aggregation.average_start import Average  # with the mean of past sessions
from thalweg.aggregation.bank import (
    Arranged,
    Bank,
    Divides,
    Division,
    Mixes,
    OneModel,
    RemarksOnBank,
    chosen,
)
from thalweg.aggregation.base import Age, Paces, Presents, Reports, ServerRule, Weights
from thalweg.aggregation.by_samples import BySamples  # in proportion to samples held
from thalweg.aggregation.by_weight import ByWeight  # of the samples held, as the emphasis says
from thalweg.aggregation.equal import Equal  # all the same
from thalweg.aggregation.fedacg import FedAcg  # with momentum, and clients look ahead
from thalweg.aggregation.feddaa import FedDaa  # as many as there are concepts in a time step
from thalweg.aggregation.feddrift import FedDrift  # a model per concept, opened and merged
from thalweg.aggregation.fedexp import FedExp  # farther, the more the clients disagree
from thalweg.aggregation.fedrc import FedRc  # models that explain samples beyond their labels
from thalweg.aggregation.flash import Flash  # adaptive, faster after a drift
from thalweg.aggregation.krum import Krum, MultiKrum  # the updates in the midst of the others
from thalweg.aggregation.median import Median  # number by number
from thalweg.aggregation.norm_clip import NormClip  # none longer than a bound
from thalweg.aggregation.opening import Opening, Previous, Rehearse
from thalweg.aggregation.oracle import Oracle  # a model per true concept
from thalweg.aggregation.robust import Combined, Robust
from thalweg.aggregation.secrecy import SECRECIES, Masked  # the sum is seen, no single update
from thalweg.aggregation.shift_aware import ShiftAware  # less for clients whose data mislead
from thalweg.aggregation.staleness import (  # what updates count that come late
    Constant,
    Hinge,
    Polynomial,
    Refuse,
    Staleness,
)
from thalweg.aggregation.step import Step  # the weighted mean
from thalweg.aggregation.trimmed_mean import TrimmedMean  # without the largest and the smallest
from thalweg.aggregation.warm_start import WarmStart  # with the mean of those that are alike

WEIGHTS = {
    "equal": Equal,
    "by-samples": BySamples,
    "by-weight": ByWeight,
    "shift-aware": ShiftAware,
}
BANKS = {
    "one-model": OneModel,
    "feddrift": FedDrift,
    "fedrc": FedRc,
    "feddaa": FedDaa,
    "oracle": Oracle,
}
OPENINGS = {"previous": Previous, "average": Average, "warm-start": WarmStart, "anew": Anew}
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
STALENESS = {"refuse": Refuse, "polynomial": Polynomial, "hinge": Hinge, "constant": Constant}

__all__ = [
    "BANKS",
    "OPENINGS",
    "ROBUST",
    "SECRECIES",
    "SERVER_RULES",
    "STALENESS",
    "WEIGHTS",
    "Adaptive",
    "Age",
    "Anew",
    "Arranged",
    "Average",
    "Bank",
    "BySamples",
    "ByWeight",
    "Combined",
    "Constant",
    "Divides",
    "Division",
    "Equal",
    "FedAcg",
    "FedDaa",
    "FedDrift",
    "FedExp",
    "FedRc",
    "Flash",
    "Hinge",
    "Krum",
    "Masked",
    "Median",
    "Mixes",
    "MultiKrum",
    "NormClip",
    "OneModel",
    "Opening",
    "Oracle",
    "Paces",
    "Polynomial",
    "Presents",
    "Previous",
    "Refuse",
    "Rehearse",
    "RemarksOnBank",
    "Reports",
    "Robust",
    "ServerRule",
    "ShiftAware",
    "Staleness",
    "Step",
    "TrimmedMean",
    "WarmStart",
    "Weights",
    "chosen",
]
