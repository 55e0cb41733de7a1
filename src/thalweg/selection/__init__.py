"""Stage 3: who takes part this round."""

from thalweg.selection.base import Selection, cohort_size, last_known
from thalweg.selection.counters import COUNTERS, Cache, Counter, Cumulative, Decay, Window
from thalweg.selection.disclosure import Disclosure, Ledger
from thalweg.selection.dpcs import Dpcs  # whose labels together are as they should be
from thalweg.selection.drawing import inclusion_probabilities, successive, systematic
from thalweg.selection.everyone import Available  # all who are here
from thalweg.selection.power_of_choice import PowerOfChoice  # on whose data the model does worst
from thalweg.selection.uniform import Uniform  # a random fraction of them

RULES = {
    "available": Available,
    "dpcs": Dpcs,
    "power-of-choice": PowerOfChoice,
    "uniform": Uniform,
}

__all__ = [
    "COUNTERS",
    "RULES",
    "Available",
    "Cache",
    "Counter",
    "Cumulative",
    "Decay",
    "Disclosure",
    "Dpcs",
    "Ledger",
    "PowerOfChoice",
    "Selection",
    "Uniform",
    "Window",
    "cohort_size",
    "inclusion_probabilities",
    "last_known",
    "successive",
    "systematic",
]
