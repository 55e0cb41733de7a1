"""Baselines: online learners without a federation, on the same arrivals as the recipes."""

from thalweg.baselines.base import LEARNERS, Baseline, Learner, OnlineLearner
from thalweg.baselines.from_river import RiverClassifier
from thalweg.baselines.registry import BASELINES
from thalweg.baselines.simple import Majority, NoChange

__all__ = [
    "BASELINES",
    "LEARNERS",
    "Baseline",
    "Learner",
    "Majority",
    "NoChange",
    "OnlineLearner",
    "RiverClassifier",
]
