"""Evaluation: scores on the test set, at clients, over sessions, drifts, tasks and alarms."""

from thalweg.evaluation.alarms import AlarmScores, alarm_scores, alarm_summary
from thalweg.evaluation.best_round import BEST_ROUND_METRICS, add_best_round
from thalweg.evaluation.clients import accuracies_by_mix, accuracies_by_owner
from thalweg.evaluation.drift_detection import DriftDetection
from thalweg.evaluation.forgetting import (
    add_task_metrics,
    add_two_step_accuracy,
    backward_transfer,
    forgetting,
    task_summary,
    task_table,
)
from thalweg.evaluation.held_out import ModelScores, compute_scores
from thalweg.evaluation.mixtures import ClientTests, client_tests, purity
from thalweg.evaluation.recovery import (
    Recovery,
    add_step_accuracy,
    recoveries,
    split_by_drift,
    step_accuracies,
)
from thalweg.evaluation.sessions import SessionContext, session_accuracy, session_member_scores
from thalweg.evaluation.tasks import (
    ASSIGNMENTS,
    Assignment,
    mixture_by_concept,
    mixture_by_labels,
)
from thalweg.evaluation.transitions import (
    Transition,
    take_until_crossing,
    take_until_transition,
    transitions,
)

__all__ = [
    "ASSIGNMENTS",
    "BEST_ROUND_METRICS",
    "AlarmScores",
    "Assignment",
    "ClientTests",
    "DriftDetection",
    "ModelScores",
    "Recovery",
    "SessionContext",
    "Transition",
    "accuracies_by_mix",
    "accuracies_by_owner",
    "add_best_round",
    "add_step_accuracy",
    "add_task_metrics",
    "add_two_step_accuracy",
    "alarm_scores",
    "alarm_summary",
    "backward_transfer",
    "client_tests",
    "compute_scores",
    "forgetting",
    "mixture_by_concept",
    "mixture_by_labels",
    "purity",
    "recoveries",
    "session_accuracy",
    "session_member_scores",
    "split_by_drift",
    "step_accuracies",
    "take_until_crossing",
    "take_until_transition",
    "task_summary",
    "task_table",
    "transitions",
]
