"""Stage 3: who takes part this round."""

from thalweg.selection.base import Selection
from thalweg.selection.everyone import Available  # all who are here
from thalweg.selection.uniform import Uniform  # a random fraction of them

RULES = {"available": Available, "uniform": Uniform}

__all__ = ["RULES", "Available", "Selection", "Uniform"]
