"""Stage 2½: how much each kept sample counts."""

from thalweg.emphasis.base import Assigns, Emphasis
from thalweg.emphasis.early import Early  # only in the first part of the run
from thalweg.emphasis.inverse_stay import InverseStay  # less the longer it has stayed
from thalweg.emphasis.old_and_new import OldAndNew  # stored data against what streams in

EMPHASES = {"inverse-stay": InverseStay, "old-and-new": OldAndNew, "early": Early}

__all__ = ["EMPHASES", "Assigns", "Early", "Emphasis", "InverseStay", "OldAndNew"]
