"""Session starts: the model with which a session of clients begins.

A session is a sequence of rounds with the same member clients. When the members change, the policy
`Recipe.session_start` chooses the first model of the new session, for example the last model
(`Previous`) or an average of the final models of similar past sessions (`WarmStart`).
"""

from thalweg.sessions.average import Average  # mean of the final models of all past sessions
from thalweg.sessions.base import (
    ExtraStartMetrics,
    Previous,
    ProbeRound,
    Reset,
    SessionStart,
)
from thalweg.sessions.warm_start import WarmStart  # weighted by the similarity of sessions

SESSION_STARTS = {"previous": Previous, "average": Average, "warm-start": WarmStart, "reset": Reset}

__all__ = [
    "SESSION_STARTS",
    "Average",
    "ExtraStartMetrics",
    "Previous",
    "ProbeRound",
    "Reset",
    "SessionStart",
    "WarmStart",
]
