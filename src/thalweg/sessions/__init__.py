"""Session starts: the initial model of a session of clients."""

from thalweg.sessions.average import Average  # with the mean of past sessions
from thalweg.sessions.base import Previous, ProbeRound, SessionStart
from thalweg.sessions.reset import Reset  # sessions begin with the model as it was drawn
from thalweg.sessions.warm_start import WarmStart  # with the mean of those that are alike

SESSION_STARTS = {"previous": Previous, "average": Average, "warm-start": WarmStart, "reset": Reset}

__all__ = [
    "SESSION_STARTS",
    "Average",
    "Previous",
    "ProbeRound",
    "Reset",
    "SessionStart",
    "WarmStart",
]
