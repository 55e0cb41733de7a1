"""What we report."""

from thalweg.evaluation.alarms import AlarmScores, alarm_scores, alarm_summary
from thalweg.evaluation.clients import accuracies_by_mix, accuracies_by_owner
from thalweg.evaluation.held_out import Scores, held_out_scores
from thalweg.evaluation.sessions import Turnout, session_scores
from thalweg.evaluation.transitions import Transition, transitions

__all__ = [
    "AlarmScores",
    "Scores",
    "Transition",
    "Turnout",
    "accuracies_by_mix",
    "accuracies_by_owner",
    "alarm_scores",
    "alarm_summary",
    "held_out_scores",
    "session_scores",
    "transitions",
]
