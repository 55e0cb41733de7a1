"""Stage 2½: how much each kept sample counts."""

from thalweg.sample_weights.base import AssignsWeights, SampleWeights
from thalweg.sample_weights.early import Early  # only in the first part of the run
from thalweg.sample_weights.inverse_age import InverseAge  # less the longer it has stayed
from thalweg.sample_weights.old_and_new import OldAndNew  # stored data against what streams in

SAMPLE_WEIGHTS = {"inverse-age": InverseAge, "old-and-new": OldAndNew, "early": Early}

__all__ = ["SAMPLE_WEIGHTS", "AssignsWeights", "Early", "InverseAge", "OldAndNew", "SampleWeights"]
