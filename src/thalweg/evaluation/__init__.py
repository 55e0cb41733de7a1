"""What we report."""

from thalweg.evaluation.alarms import AlarmScores, alarm_scores, alarm_summary
from thalweg.evaluation.clients import accuracies_by_mix, accuracies_by_owner
from thalweg.evaluation.forgetting import backward_transfer, forgetting, task_summary, task_table
from thalweg.evaluation.held_out import ModelScores, held_out_scores
from thalweg.evaluation.mixtures import ClientTests, client_tests
from thalweg.evaluation.purity import purity
from thalweg.evaluation.recovery import (
    Recovery,
    add_step_accuracy,
    recoveries,
    step_accuracies,
)
from thalweg.evaluation.sessions import SessionContext, session_scores
from thalweg.evaluation.tasks import (
    ASSIGNMENTS,
    Assignment,
    mixture_by_concept,
    mixture_by_labels,
)
from thalweg.evaluation.transitions import Transition, transitions

__all__ = [
    "ASSIGNMENTS",
    "AlarmScores",
    "Assignment",
    "ClientTests",
    "ModelScores",
    "Recovery",
    "SessionContext",
    "Transition",
    "accuracies_by_mix",
    "accuracies_by_owner",
    "add_step_accuracy",
    "alarm_scores",
    "alarm_summary",
    "backward_transfer",
    "client_tests",
    "forgetting",
    "held_out_scores",
    "mixture_by_concept",
    "mixture_by_labels",
    "purity",
    "recoveries",
    "session_scores",
    "step_accuracies",
    "task_summary",
    "task_table",
    "transitions",
]
