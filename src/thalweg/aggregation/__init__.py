"""Stage 5: how much each update counts, and how updates become the model."""

from thalweg.aggregation.base import Age, Reports, ServerRule, Weights
from thalweg.aggregation.by_samples import BySamples  # in proportion to samples held
from thalweg.aggregation.equal import Equal  # all the same
from thalweg.aggregation.shift_aware import ShiftAware  # less for clients whose data mislead
from thalweg.aggregation.step import Step  # the weighted mean

WEIGHTS = {"equal": Equal, "by-samples": BySamples, "shift-aware": ShiftAware}
SERVER_RULES = {"step": Step}

__all__ = [
    "SERVER_RULES",
    "WEIGHTS",
    "Age",
    "BySamples",
    "Equal",
    "Reports",
    "ServerRule",
    "ShiftAware",
    "Step",
    "Weights",
]
