"""What we report."""

from thalweg.evaluation.clients import accuracies_by_mix, accuracies_by_owner
from thalweg.evaluation.held_out import Scores, held_out_scores

__all__ = ["Scores", "accuracies_by_mix", "accuracies_by_owner", "held_out_scores"]
