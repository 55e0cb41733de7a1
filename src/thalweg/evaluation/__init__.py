"""What we report."""

from thalweg.evaluation.held_out import Scores, held_out_scores

__all__ = ["Scores", "held_out_scores"]
