"""Sessions: when they start at run time, and the model with which they start.

A session is a sequence of rounds with the same member clients. A schedule of the scenario defines
the sessions, or the policy `Recipe.session_trigger` opens them when the observed clients change.
The policy `Recipe.session_start` chooses the first model of a new session, for example the last
model (`Previous`) or an average of the final models of similar past sessions (`WarmStart`).
"""

from thalweg.sessions.average import Average  # mean of the final models of all past sessions
from thalweg.sessions.base import (
    ExtraStartMetrics,
    JudgesModels,
    Opening,
    Previous,
    ProbeRound,
    Reset,
    SessionStart,
    SessionTrigger,
)
from thalweg.sessions.judged import Judged  # the lowest loss at the clients of the session
from thalweg.sessions.presence import Presence  # opens sessions when the clients change
from thalweg.sessions.warm_start import WarmStart  # weighted by the similarity of sessions

SESSION_STARTS = {
    "previous": Previous,
    "average": Average,
    "warm-start": WarmStart,
    "judged": Judged,
    "reset": Reset,
}
SESSION_TRIGGERS = {"presence": Presence}

__all__ = [
    "SESSION_STARTS",
    "SESSION_TRIGGERS",
    "Average",
    "ExtraStartMetrics",
    "Judged",
    "JudgesModels",
    "Opening",
    "Presence",
    "Previous",
    "ProbeRound",
    "Reset",
    "SessionStart",
    "SessionTrigger",
    "WarmStart",
]
