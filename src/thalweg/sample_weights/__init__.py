"""Sample weights: how much each kept sample counts in the local loss.

To add a policy, write a class with the method of `SampleWeights` and add it to `SAMPLE_WEIGHTS`.
"""

from thalweg.sample_weights.base import AssignsWeights, SampleWeights
from thalweg.sample_weights.early import Early  # train only in the first part of the run
from thalweg.sample_weights.inverse_age import InverseAge  # less for samples long in memory
from thalweg.sample_weights.old_and_new import OldAndNew  # balance stored and streaming clients

SAMPLE_WEIGHTS = {"inverse-age": InverseAge, "old-and-new": OldAndNew, "early": Early}

__all__ = ["SAMPLE_WEIGHTS", "AssignsWeights", "Early", "InverseAge", "OldAndNew", "SampleWeights"]
