"""Client selection: which clients take part in a round.

To add a rule, write a class with the method of `Selection` and add it to `RULES`.
"""

from thalweg.selection.available import Available  # all present clients
from thalweg.selection.balanced_cohort import BalancedCohort  # the best of many uniform cohorts
from thalweg.selection.base import Selection, cohort_size, last_known
from thalweg.selection.counters import (
    COUNTERS,
    CumulativeCounter,
    DecayCounter,
    LabelCounter,
    MemoryCounter,
    WindowCounter,
)
from thalweg.selection.dpcs import Dpcs, DrawProbabilities  # a balanced mix of labels (DPCS)
from thalweg.selection.drawing import draw_successive, draw_systematic
from thalweg.selection.label_privacy import LabelPrivacy, PrivacyAccount  # noise on label counts
from thalweg.selection.power_of_choice import PowerOfChoice  # clients with the largest losses
from thalweg.selection.uniform import Uniform  # a random fraction of the present clients

RULES = {
    "available": Available,
    "balanced-cohort": BalancedCohort,
    "dpcs": Dpcs,
    "power-of-choice": PowerOfChoice,
    "uniform": Uniform,
}

__all__ = [
    "COUNTERS",
    "RULES",
    "Available",
    "BalancedCohort",
    "CumulativeCounter",
    "DecayCounter",
    "Dpcs",
    "DrawProbabilities",
    "LabelCounter",
    "LabelPrivacy",
    "MemoryCounter",
    "PowerOfChoice",
    "PrivacyAccount",
    "Selection",
    "Uniform",
    "WindowCounter",
    "cohort_size",
    "draw_successive",
    "draw_systematic",
    "last_known",
]
