"""What a client computes from what it kept: an objective, and how it is descended."""

from thalweg.local.base import Batch, Memo, Model, Objective
from thalweg.local.cross_entropy import CrossEntropy
from thalweg.local.sgd import Sgd

OBJECTIVES: dict[str, type[Objective]] = {"cross_entropy": CrossEntropy}

__all__ = ["OBJECTIVES", "Batch", "CrossEntropy", "Memo", "Model", "Objective", "Sgd"]
