"""Stage 2½: how much each kept sample counts."""

from thalweg.emphasis.base import Assigns, Emphasis
from thalweg.emphasis.inverse_stay import InverseStay  # less the longer it has stayed
from thalweg.emphasis.old_and_new import OldAndNew  # stored data against what streams in

EMPHASES = {"inverse-stay": InverseStay, "old-and-new": OldAndNew}

__all__ = ["EMPHASES", "Assigns", "Emphasis", "InverseStay", "OldAndNew"]
