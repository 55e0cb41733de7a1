"""Stage 3: who takes part this round."""

from thalweg.selection.available import Available  # all who are here
from thalweg.selection.base import Selection, cohort_size, last_known
from thalweg.selection.counters import (
    COUNTERS,
    CumulativeCounter,
    DecayCounter,
    LabelCounter,
    MemoryCounter,
    WindowCounter,
)
from thalweg.selection.dpcs import Dpcs  # whose labels together are as they should be
from thalweg.selection.drawing import draw_successive, draw_systematic, inclusion_probabilities
from thalweg.selection.label_privacy import LabelPrivacy, PrivacyAccount
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
    "CumulativeCounter",
    "DecayCounter",
    "Dpcs",
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
    "inclusion_probabilities",
    "last_known",
]
